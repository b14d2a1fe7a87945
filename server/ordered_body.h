#ifndef TANDEM_SERVER_ORDERED_BODY_H_
#define TANDEM_SERVER_ORDERED_BODY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace tandem {

// A request's body with members in the order in which they were written, which models see: in
// templates, and in schemas. Parsed when it is asked for. The body must outlive it.
class OrderedBody {
 public:
  explicit OrderedBody(absl::string_view body) : body_(body) {}

  // REQUIRES: the body is JSON, and has this member.
  const nlohmann::ordered_json& At(const std::vector<std::string>& path) {
    if (!json_.has_value()) json_ = nlohmann::ordered_json::parse(body_);
    const nlohmann::ordered_json* at = &*json_;
    for (const std::string& name : path) at = &at->at(name);
    return *at;
  }

 private:
  absl::string_view body_;
  std::optional<nlohmann::ordered_json> json_;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_ORDERED_BODY_H_
