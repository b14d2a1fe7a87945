// tandem rank: a process that computes its part of each pass of the process that started it.
#include <memory>

#include "CLI/CLI.hpp"
#include "engine/tensor_parallel.h"
#include "model/ranks/rank_group.h"
#include "tools/command.h"

namespace tandem {

Command AddRankCommand(CLI::App* program) {
  const auto rank = std::make_shared<int>(0);
  CLI::App* const app = program->add_subcommand(
      "rank", "Compute one rank's part of the passes of the process that started this one");
  app->group("");  // hidden: users do not type it
  app->add_option("rank", *rank, "From 1 to the number of ranks minus 1")
      ->required()
      ->check(CLI::Range(1, kMaxRanks - 1));
  return {.app = app,
          .check = [] { return absl::OkStatus(); },
          .run = [rank] { return FollowRankZero(*rank); }};
}

}  // namespace tandem
