// tandem tokenize: encodes text and decodes the ids again, to compare with other tokenizers.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/json/request_fields.h"
#include "base/status_macros.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "tools/command.h"
#include "tools/conversation.h"
#include "tools/help_text.h"
#include "tools/hub/hub_fetch.h"
#include "tools/option_group.h"
#include "tools/standard_streams.h"
#include "tools/text_input.h"

namespace tandem {
namespace {

using Json = SortedJson;

struct TokenizeFlags {
  std::string tokenizer;
  std::optional<std::string> text;
  std::string jsonl;
  bool no_special = false;
  bool as_prompt = false;
  bool chat = false;

  absl::Status Check() const {
    if (text.has_value() != jsonl.empty()) {
      return absl::InvalidArgumentError("--text, --jsonl: one of them must be given");
    }
    return absl::OkStatus();
  }
  SpecialTokens special() const {
    return no_special ? SpecialTokens::kPlain : SpecialTokens::kParse;
  }
};

// One line of input.
struct Item {
  std::string text;
  SpecialTokens special = SpecialTokens::kParse;
};

absl::StatusOr<Item> ParseItem(const std::string& line, const std::string& where,
                               SpecialTokens special) {
  const auto wrong = [&](absl::string_view field, const Json& found, absl::string_view allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", field, "found ", Shown(found), ", allowed: ", allowed));
  };
  ASSIGN_OR_RETURN(const Json json, ParseJson(line, where));
  if (!json.is_object()) return wrong("", json, "an object like {\"text\": \"...\"}");
  Item item{.text = "", .special = special};
  if (!json.contains("text")) return MissingField(absl::StrCat(where, ": text"), "a string");
  for (const auto& [key, value] : json.items()) {
    if (key == "text") {
      if (!value.is_string()) return wrong("text: ", value, "a string");
      item.text = value.get<std::string>();
    } else if (key == "special") {
      if (value != "parse" && value != "plain") return wrong("special: ", value, "parse, plain");
      item.special = value == "parse" ? SpecialTokens::kParse : SpecialTokens::kPlain;
    } else {
      return wrong("key ", key, "text, special");
    }
  }
  return item;
}

// Encodes the text of items.
class Encoder {
 public:
  static absl::StatusOr<Encoder> Load(const TokenizeFlags& flags) {
    Encoder encoder;
    encoder.as_prompt_ = flags.as_prompt;
    ASSIGN_OR_RETURN(const std::string path, BringModel(flags.tokenizer));
    ASSIGN_OR_RETURN(encoder.tokenizer_, Tokenizer::Load(path));
    if (flags.chat) {
      ASSIGN_OR_RETURN(encoder.chat_, ChatFormat::Load(path, encoder.tokenizer_.get()));
    }
    return encoder;
  }

  // Prints the ids of an item and the decoded text. Errors about the text begin with `where`.
  absl::Status Print(const Item& item, const std::string& where) const {
    const absl::StatusOr<std::vector<TokenId>> ids = Encode(item);
    if (!ids.ok()) {
      return {ids.status().code(), absl::StrCat(where, ": ", ids.status().message())};
    }
    const JsonValue json = {{"ids", *ids}, {"decoded", tokenizer_->Decode(*ids)}};
    return tandem::Print(json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n");
  }

 private:
  absl::StatusOr<std::vector<TokenId>> Encode(const Item& item) const {
    if (chat_.has_value()) {
      Request request{.prompt = item.text};
      RETURN_IF_ERROR(chat_->PutTurn({}, &request).status());
      return request.prompt_ids;
    }
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer_->Encode(item.text, item.special));
    return as_prompt_ ? tokenizer_->WithTemplate(std::move(ids)) : ids;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatFormat> chat_;
  bool as_prompt_ = false;
};

absl::Status Run(const TokenizeFlags& flags) {
  ASSIGN_OR_RETURN(const Encoder encoder, Encoder::Load(flags));
  if (flags.text.has_value()) {
    return encoder.Print({.text = *flags.text, .special = flags.special()}, "--text");
  }
  ASSIGN_OR_RETURN(TextInput input, TextInput::Open(flags.jsonl));
  while (const std::optional<absl::StatusOr<std::string>> line = input.NextLine()) {
    RETURN_IF_ERROR(line->status());
    if (absl::StripAsciiWhitespace(**line).empty()) continue;
    ASSIGN_OR_RETURN(const Item item, ParseItem(**line, input.where(), flags.special()));
    RETURN_IF_ERROR(encoder.Print(item, input.where()));
  }
  return absl::OkStatus();
}

}  // namespace

Command AddTokenizeCommand(CLI::App* program) {
  const auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* app =
      program->add_subcommand("tokenize", "Encode texts and decode their token ids again");
  OptionGroup group(app);
  group
      .Add("-m,--tokenizer", "PATH", &flags->tokenizer,
           "A model folder, a GGUF file, a tokenizer.json, a tokenizer.model or a fetched model's "
           "name")
      ->required();
  group.Add("--text", "TEXT", &flags->text, "Text to tokenize");
  group.Add("--jsonl", "F", &flags->jsonl,
            "JSON lines {\"text\": ..., \"special\": \"parse\"|\"plain\"}; - reads standard input");
  group.AddFlag("--no-special", &flags->no_special,
                "Treat special tokens in the text as ordinary text, unless a line says otherwise");
  CLI::Option* as_prompt =
      group.AddFlag("--as-prompt", &flags->as_prompt,
                    "Add the tokens that the model's prompts begin and end with");
  group
      .AddFlag("--chat", &flags->chat,
               "Format each text as a message with the model's chat template, up to the answer")
      ->excludes(as_prompt);
  app->footer(
      "Prints {\"ids\": [...], \"decoded\": \"...\"} for each text, and adds no other tokens.");
  AddExamples(app, {"tandem tokenize -m smollm2 --text \"Hello\"",
                    "tandem tokenize -m smollm2 --chat --text \"Hello\"",
                    "tandem tokenize -m model.gguf --jsonl texts.jsonl"});
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
