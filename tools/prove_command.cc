// tandem prove: compares a server that decodes plainly with one that speculates, and prints what
// speculation changes.
#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/format.h"
#include "base/json/json_text.h"
#include "base/output_folder.h"
#include "base/status_macros.h"
#include "proof/remote/http_client.h"
#include "proof/remote/http_engine.h"
#include "proof/remote/remote_proof.h"
#include "tandem/json_value.h"
#include "tools/built_in_prompts.h"
#include "tools/command.h"
#include "tools/help_text.h"
#include "tools/option_group.h"
#include "tools/prompt_file.h"
#include "tools/secret_file.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

constexpr int kExitOfVerdict[] = {0, 4, 1, 3};  // [RemoteVerdict]
constexpr int kExitNoVerdict = 2;

struct Server {
  std::string url{};
  std::string body{};  // JSON

  std::unique_ptr<HttpClient> client{};
  std::unique_ptr<HttpEngine> engine{};
};

struct ProveFlags {
  std::string server{};
  Server plain{};
  Server speculative{};
  std::string engine = "auto";
  std::string prompts_file{};
  double seconds = 600.0;
  int64_t requests = 0;
  SecretSource api_key = {
      .option = nullptr, .file_option = "--api-key-file", .variable = "TANDEM_API_KEY"};
  std::string accept{};
  bool json = false;
  std::string json_file{};
  std::string markdown_file{};
  RemoteProofOptions proof{};

  std::atomic<int64_t> requests_left = std::numeric_limits<int64_t>::max();
  TokenTexts token_texts{};

  absl::Status Check();
  absl::Status Connect(Server* side, int draft_tokens);
  absl::Status LoadPrompts();
  std::string CommandLine() const;
};

absl::Status ProveFlags::Check() {
  if (!server.empty()) {
    if (!plain.url.empty() || !speculative.url.empty()) {
      return absl::InvalidArgumentError("--server: must not be given with --plain, --speculative");
    }
    plain.url = speculative.url = server;
  }
  if (plain.url.empty() || speculative.url.empty()) {
    return absl::InvalidArgumentError(
        "--plain: must be given with --speculative, or --server without both");
  }
  for (const auto& [side, url_field, body_field] :
       {std::tuple{&plain, server.empty() ? "--plain" : "--server", "--plain-body"},
        std::tuple{&speculative, "--speculative", "--speculative-body"}}) {
    RETURN_IF_ERROR(HttpUrl::Parse(side->url, url_field).status());
    if (!side->body.empty()) RETURN_IF_ERROR(ParseJsonObject(side->body, body_field).status());
  }
  const std::vector<std::string> names = RemoteCheckNames();
  for (const std::string& check : proof.checks) {
    if (absl::c_linear_search(names, check)) continue;
    return NotAllowed("--checks", Quoted(check), absl::StrJoin(names, ", "));
  }
  proof.time = absl::Seconds(seconds);
  if (requests > 0) requests_left = requests;
  return absl::OkStatus();
}

absl::Status ProveFlags::Connect(Server* side, int draft_tokens) {
  ASSIGN_OR_RETURN(const HttpUrl url, HttpUrl::Parse(side->url, "--server"));
  ASSIGN_OR_RETURN(const std::string key, api_key.Read());
  side->client = std::make_unique<HttpClient>(HttpClient::Options{.url = url, .api_key = key});
  HttpEngine::Options options = {.engine = engine,
                                 .path = url.path,
                                 .body = SortedJson::object(),
                                 .requests_left = &requests_left,
                                 .token_texts = &token_texts};
  if (!side->body.empty()) {
    ASSIGN_OR_RETURN(options.body, ParseJsonObject(side->body, "body"));
  }
  ASSIGN_OR_RETURN(side->engine, HttpEngine::Connect(side->client.get(), options));
  if (!side->body.empty()) return absl::OkStatus();
  const SortedJson members = side->engine->SpeculationMembers(draft_tokens);
  if (members.empty() && !server.empty() && draft_tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--plain-body: must be given: no field of ",
                                                   side->engine->Description(),
                                                   " is known that turns drafts off"));
  }
  side->engine->AddMembers(members);
  return absl::OkStatus();
}

absl::Status ProveFlags::LoadPrompts() {
  std::vector<Prompt> prompts;
  for (const char* text : kBuiltInPrompts) prompts.push_back({.text = text, .ids = {}});
  if (!prompts_file.empty()) {
    ASSIGN_OR_RETURN(prompts, ReadPromptFile(prompts_file));
  }
  const bool has_ids =
      plain.engine->features().prompt_ids && speculative.engine->features().prompt_ids;
  for (Prompt& prompt : prompts) {
    RemotePrompt remote = {.text = std::move(prompt.text), .ids = std::move(prompt.ids)};
    if (has_ids) {
      ASSIGN_OR_RETURN(remote, plain.engine->Tokenized(remote));
    } else if (!remote.ids.empty()) {
      return absl::InvalidArgumentError("--prompts: the servers take no prompt_ids");
    }
    proof.prompts.push_back(std::move(remote));
  }
  return absl::OkStatus();
}

std::string ProveFlags::CommandLine() const {
  std::string line = "tandem prove";
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&line, " ", option, " '", value, "'");
  };
  if (server.empty()) {
    add("--plain", plain.url);
    add("--speculative", speculative.url);
  } else {
    add("--server", server);
  }
  if (engine != "auto") add("--engine", engine);
  add("--accept", accept);
  add("--plain-body", plain.body);
  add("--speculative-body", speculative.body);
  add("--prompts", prompts_file);
  add("--checks", absl::StrJoin(proof.checks, ","));
  if (proof.runs > 0) add("--runs", absl::StrCat(proof.runs));
  if (requests > 0) add("--requests", absl::StrCat(requests));
  absl::StrAppend(&line, " --seconds ", seconds, " -k ", proof.draft_tokens, " --concurrency ",
                  proof.concurrency, " --seed ", proof.seed);
  return line;
}

// ---- Reports ----

std::string LastLine(const RemoteProof& proof) {
  return Format("%s: %s (%d answers, %.0f s)", NameOf(proof.verdict), proof.reason, proof.answers,
                absl::ToDoubleSeconds(proof.time));
}

// The text from shortly before the place where it begins to differ from the other.
std::string FromDifference(const std::string& text, const std::string& other) {
  constexpr size_t kBefore = 24;
  const auto end = std::mismatch(text.begin(), text.end(), other.begin(), other.end()).first;
  const auto equal = static_cast<size_t>(end - text.begin());
  return equal <= kBefore || text.size() < 3 * kBefore
             ? Quoted(text)
             : absl::StrCat("... ", Quoted(text.substr(equal - kBefore)));
}

std::string DifferenceText(const RemoteDifference& difference, const char* indent) {
  return absl::StrCat(indent, "request      ", difference.request, "\n", indent, "plain        ",
                      FromDifference(difference.plain, difference.speculative), "\n", indent,
                      "speculative  ", FromDifference(difference.speculative, difference.plain),
                      "\n");
}

std::string ReportText(const RemoteProof& proof) {
  std::string text =
      absl::StrCat("plain        ", proof.plain, "\nspeculative  ", proof.speculative, "\n\n");
  size_t width = 0;
  for (const RemoteCheck& check : proof.checks) width = std::max(width, check.name.size());
  for (const RemoteCheck& check : proof.checks) {
    text += Format("%-*s  %-10s  %s\n", static_cast<int>(width), check.name, NameOf(check.outcome),
                   check.text);
  }
  for (const RemoteDifference& difference : proof.differences) {
    absl::StrAppend(&text, "\n", difference.check, "\n", DifferenceText(difference, "  "));
  }
  return absl::StrCat(text, "\nverdict: ", LastLine(proof), "\n");
}

OrderedJson ReportJson(const ProveFlags& flags, const RemoteProof& proof) {
  OrderedJson json = {{"verdict", NameOf(proof.verdict)},
                      {"reason", proof.reason},
                      {"command", flags.CommandLine()},
                      {"plain", proof.plain},
                      {"speculative", proof.speculative},
                      {"near_tie_nats", proof.near_tie},
                      {"greedy_bound", OrNull(proof.greedy_bound)},
                      {"law_bound", OrNull(proof.law_bound)},
                      {"proposed", proof.proposed},
                      {"accepted", proof.accepted},
                      {"answers", proof.answers},
                      {"seconds", absl::ToDoubleSeconds(proof.time)},
                      {"checks", OrderedJson::array()},
                      {"laws", OrderedJson::array()},
                      {"differences", OrderedJson::array()}};
  for (const RemoteCheck& check : proof.checks) {
    json["checks"].push_back(
        {{"name", check.name}, {"outcome", NameOf(check.outcome)}, {"text", check.text}});
  }
  for (const RemoteLawTest& test : proof.laws) {
    json["laws"].push_back({{"setting", test.setting},
                            {"test", test.test},
                            {"prompt", test.prompt},
                            {"runs", test.runs},
                            {"degrees", test.degrees},
                            {"p_value", test.p_value},
                            {"adjusted_p", test.adjusted_p},
                            {"variation_seen", test.seen_variation}});
  }
  for (const RemoteDifference& difference : proof.differences) {
    json["differences"].push_back({{"check", difference.check},
                                   {"request", difference.request},
                                   {"plain", difference.plain},
                                   {"speculative", difference.speculative}});
  }
  return json;
}

std::string ReportMarkdown(const ProveFlags& flags, const RemoteProof& proof) {
  const auto cell = [](const std::string& text) {
    return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
  };
  std::string text =
      absl::StrCat("**", cell(LastLine(proof)), "**\n\n| check | | |\n|---|---|---|\n");
  absl::StrAppend(&text, "| plain | | ", cell(proof.plain), " |\n| speculative | | ",
                  cell(proof.speculative), " |\n");
  for (const RemoteCheck& check : proof.checks) {
    absl::StrAppend(&text, "| ", check.name, " | ", NameOf(check.outcome), " | ", cell(check.text),
                    " |\n");
  }
  absl::StrAppend(&text, "\n```\n", flags.CommandLine(), "\n```\n");
  for (const RemoteDifference& difference : proof.differences) {
    absl::StrAppend(&text, "\n", difference.check, ":\n\n```\n", DifferenceText(difference, ""),
                    "```\n");
  }
  return text;
}

absl::StatusOr<RemoteProof> ProveAndReport(ProveFlags* flags) {
  RETURN_IF_ERROR(flags->Connect(&flags->plain, 0));
  RETURN_IF_ERROR(flags->Connect(&flags->speculative, flags->proof.draft_tokens));
  RETURN_IF_ERROR(flags->LoadPrompts());
  absl::StatusOr<RemoteProof> proof;
  {
    Progress progress("proving");
    flags->proof.on_progress = [&](double share) { progress.AdvanceToShare(share); };
    proof = ProveRemotely(flags->plain.engine.get(), flags->speculative.engine.get(), flags->proof);
  }
  RETURN_IF_ERROR(proof.status());
  const OrderedJson json = ReportJson(*flags, *proof);
  if (!flags->json_file.empty()) {
    RETURN_IF_ERROR(ReplaceFile(flags->json_file, LineOf(json)));
  }
  if (!flags->markdown_file.empty()) {
    RETURN_IF_ERROR(ReplaceFile(flags->markdown_file, ReportMarkdown(*flags, *proof)));
  }
  RETURN_IF_ERROR(flags->json ? PrintJson(json) : Print(ReportText(*proof)));
  return proof;
}

absl::Status Run(ProveFlags* flags) {
  const absl::StatusOr<RemoteProof> proof = ProveAndReport(flags);
  if (!proof.ok()) return WithExitStatus(proof.status(), kExitNoVerdict);
  const bool is_accepted = proof->verdict == RemoteVerdict::kArithmetic && !flags->accept.empty();
  if (proof->verdict == RemoteVerdict::kNoDifference || is_accepted) return absl::OkStatus();
  return WithExitStatus(absl::FailedPreconditionError(
                            absl::StrCat("prove: ", NameOf(proof->verdict), ": ", proof->reason)),
                        kExitOfVerdict[static_cast<int>(proof->verdict)]);
}

}  // namespace

Command AddProveCommand(CLI::App* program) {
  const auto flags = std::make_shared<ProveFlags>();
  CLI::App* app = program->add_subcommand(
      "prove", "Compare a server that speculates, of any engine, with one that does not");
  OptionGroup servers(app, "Servers");
  servers.Add("--plain", "URL", &flags->plain.url, "The server that decodes plainly");
  servers.Add("--speculative", "URL", &flags->speculative.url, "The server that speculates");
  servers.Add("--server", "URL", &flags->server,
              "In place of both: one server that gets two kinds of requests");
  servers.Add("--plain-body", "JSON", &flags->plain.body,
              "Members added to requests that are decoded plainly [Tandem: no drafts]");
  servers.Add("--speculative-body", "JSON", &flags->speculative.body,
              "Members added to the others [Tandem: drafts of -k tokens]");
  servers.Add("--engine", "NAME", &flags->engine, "What both servers are",
              OneOf{RemoteEngineNames()});
  servers.Add("--api-key-file", "F", &flags->api_key.file, "File with the key of both servers");
  OptionGroup proof(app, "Proof");
  proof.Add("--prompts", "F.jsonl", &flags->prompts_file,
            "JSON lines {\"prompt\": ...} or {\"prompt_ids\": [...]} [60 built-in beginnings]");
  proof.Add("--seconds", "S", &flags->seconds, "Approximate duration",
            {.low = 1e-3, .high = 86400});
  proof.Add("--runs", "N", &flags->proof.runs,
            "Prompts per check, and answers per law and server [as many as the time allows]",
            {.low = 0});
  proof.Add("--requests", "N", &flags->requests, "Most requests to both servers [no limit]",
            {.low = 0});
  proof.Add("-k,--draft-tokens", "N", &flags->proof.draft_tokens, "Draft length of the server",
            {.low = 1, .high = 32});
  proof.Add("--concurrency", "N", &flags->proof.concurrency, "Requests at the same time",
            {.low = 1, .high = 256});
  proof.Add("--seed", "N", &flags->proof.seed, "Seed of all random numbers");
  proof.Add("--checks", "A,B", &flags->proof.checks,
            absl::StrCat("Parts of the proof: ", absl::StrJoin(RemoteCheckNames(), ", "), " [all]"),
            ',');
  proof.Add("--accept", "near-ties", &flags->accept, "Exit status 0 for the verdict arithmetic",
            OneOf{{"near-ties"}});
  OptionGroup report(app, "Report");
  report.AddFlag("--json", &flags->json, "Print one JSON object instead of text");
  report.Add("--json-file", "F", &flags->json_file, "Write that object to a file, too");
  report.Add("--markdown", "F", &flags->markdown_file, "Write a table for an issue to a file");
  AddExamples(app, {"tandem prove --server http://localhost:8080 --seconds 60",
                    "tandem prove --plain http://a:8000 --speculative http://b:8000"});
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return Run(flags.get()); }};
}

}  // namespace tandem
