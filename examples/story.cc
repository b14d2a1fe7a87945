#include <tandem/engine.h>

#include <cstdio>

// The program in the README:  story TARGET_FOLDER DRAFT_FOLDER
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto engine = tandem::Engine::Create({.target = argv[1], .draft = argv[2]});
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    return 1;
  }
  tandem::Request request{.prompt = "Once upon a time", .max_tokens = 64};
  request.sampling.temperature = 0.7f;
  request.seed = 1;  // omit it for a new story each time
  const auto story = (*engine)->Generate(request, [](const tandem::Piece& piece) {
    std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
    return true;  // false would stop here
  });
  if (!story.ok()) return 1;
  std::printf("\n%.0f %% of the draft's tokens were accepted\n",
              100 * story->stats.AcceptanceRate());
}
