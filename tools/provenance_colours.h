#ifndef TANDEM_TOOLS_PROVENANCE_COLOURS_H_
#define TANDEM_TOOLS_PROVENANCE_COLOURS_H_

#include <string>
#include <string_view>

namespace tandem {

// Whether standard output takes colours: a terminal that is not dumb, unless $NO_COLOR is set to
// something (https://no-color.org).
bool StandardOutputTakesColours();

// Paints text for a terminal: text of the draft in green, reasoning dim. Control characters other
// than line ends and tabs are left out, so that a model cannot command the terminal.
// Thread-compatible.
class ProvenanceColours {
 public:
  struct Ink {
    bool is_drafted = false;
    bool is_dim = false;
    friend bool operator==(const Ink&, const Ink&) = default;
  };
  // Appends `text` in this ink.
  void Paint(std::string_view text, Ink ink, std::string* out);

 private:
  Ink ink_{};  // of the terminal
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_PROVENANCE_COLOURS_H_
