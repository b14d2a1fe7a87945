// Tells a story with two models, writing each piece as soon as it is certain.
//
//   generate TARGET_FOLDER [DRAFT_FOLDER]
#include <tandem/engine.h>

#include <cstdio>
#include <memory>
#include <string>

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "generate: %s\n", status.ToString().c_str());
  return 1;
}

int Generate(const std::string& target, const std::string& draft) {
  tandem::EngineOptions options;
  options.target = target;
  options.draft = draft;
  options.draft_tokens = 4;
  absl::StatusOr<std::unique_ptr<tandem::Engine>> engine = tandem::Engine::Create(options);
  if (!engine.ok()) return Fail(engine.status());

  tandem::Request request;
  request.prompt = "Once upon a time there lived an old king who had three sons.";
  request.max_tokens = 128;
  request.sampling.temperature = 0.7f;
  request.seed = 1;
  std::fputs(request.prompt.c_str(), stdout);
  absl::StatusOr<tandem::Completion> story =
      (*engine)->Generate(request, [](const tandem::Piece& piece) {
        std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
        std::fflush(stdout);
        return true;  // false would stop here
      });
  if (!story.ok()) return Fail(story.status());

  std::printf("\n\n%zu tokens, ended by %s; where each came from: %s\n", story->token_ids.size(),
              story->finish_reason.c_str(), story->provenance.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: generate TARGET_FOLDER [DRAFT_FOLDER]\n");
    return 2;
  }
  return Generate(argv[1], argc == 3 ? argv[2] : "");
}
