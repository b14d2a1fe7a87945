#include <tandem/engine.h>

#include <cstdio>
#include <string>

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

// story TARGET_FOLDER DRAFT_FOLDER.
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string target = argv[1];
  const std::string draft = argv[2];

  auto engine = tandem::Engine::Create({.target = target, .draft = draft});
  if (!engine.ok()) return Fail(engine.status());
  tandem::Request request{.prompt = "Once upon a time", .max_tokens = 64};
  request.sampling.temperature = 0.7f;
  request.seed = 1;  // omit it for a new story each time
  const auto story = (*engine)->Generate(request, [](const tandem::Piece& piece) {
    std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
    return true;  // false would stop here
  });
  if (!story.ok()) return Fail(story.status());
  std::printf("\n%.0f %% of the draft's tokens were accepted\n",
              100 * story->stats.AcceptanceRate());
}
