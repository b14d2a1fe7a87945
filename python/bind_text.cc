#include <nanobind/stl/unique_ptr.h>
#include <tandem/chat_template.h>
#include <tandem/field_error.h>
#include <tandem/generic_tools.h>
#include <tandem/model_places.h>
#include <tandem/tokenizer.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "python/bindings.h"

namespace tandem::python {
namespace {

namespace nb = nanobind;

// All texts are JSON.
ChatInput InputOf(const std::string& messages, const std::optional<std::string>& tools,
                  const std::string& variables, bool add_generation_prompt,
                  bool continue_final_message, double now) {
  ChatInput input;
  input.messages = JsonOf("messages", messages);
  if (tools.has_value()) input.tools = JsonOf("tools", *tools);
  input.kwargs = JsonOf("variables", variables);
  input.add_generation_prompt = add_generation_prompt;
  input.continue_final_message = continue_final_message;
  input.now = absl::UnixEpoch() + absl::Seconds(now);
  return input;
}

template <typename Work>
auto WithoutGil(const Work& work) {
  nb::gil_scoped_release released;
  return work();
}

}  // namespace

void BindText(nb::module_& module) {
  nb::class_<Tokenizer> tokenizer(module, "Tokenizer", "Text to tokens and back. Thread-safe.");
  tokenizer
      .def_static(
          "load",
          [](const std::string& path) {
            const std::string place = ValueOrRaise(ModelNamed(path));
            return ValueOrRaise(WithoutGil([&] { return Tokenizer::Load(place); }));
          },
          nb::arg("path"),
          "The tokenizer of a model's folder, a GGUF file, a model given by name,\n"
          "or a tokenizer file.")
      .def(
          "encode",
          [](const Tokenizer& self, const std::string& text, bool parse_special,
             bool add_template) {
            const auto special = parse_special ? SpecialTokens::kParse : SpecialTokens::kPlain;
            std::vector<TokenId> ids =
                ValueOrRaise(WithoutGil([&] { return self.Encode(text, special); }));
            if (add_template) ids = self.WithTemplate(std::move(ids));
            return ArrayOf<TokenId>(ids);
          },
          nb::arg("text"), nb::kw_only(), nb::arg("parse_special") = false,
          nb::arg("add_template") = false,
          "The ids of a text. `parse_special`: special tokens spelled out in it become their ids,\n"
          "not plain text. `add_template`: adds the tokens at the start and end of a prompt.")
      .def(
          "decode",
          [](const Tokenizer& self, const nb::object& ids, bool skip_special) {
            return self.Decode(IdsOf(ids, "ids"), skip_special);
          },
          nb::arg("ids").none(), nb::kw_only(), nb::arg("skip_special") = false,
          nb::sig("def decode(self, ids: collections.abc.Sequence[int] | numpy.ndarray, *, "
                  "skip_special: bool = False) -> str"),
          "The text of ids, which are a list or an array with one dimension. Bytes that are not\n"
          "UTF-8 become U+FFFD.")
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size, "The highest id plus one.")
      .def("is_special", &Tokenizer::IsSpecial, nb::arg("id"))
      .def(
          "id_of",
          [](const Tokenizer& self, const std::string& token) -> std::optional<TokenId> {
            const TokenId id = self.IdOf(token);
            return id < 0 ? std::nullopt : std::optional(id);
          },
          nb::arg("token"), "The id of a token by its exact written form, or None.");

  AddRepr(tokenizer, {"vocab_size"});

  nb::class_<ChatTemplate> chat(module, "ChatTemplate",
                                "Converts conversations to prompts. Thread-safe.");
  chat.def_static(
          "load",
          [](const std::string& model) {
            const std::string place = ValueOrRaise(ModelNamed(model));
            return ValueOrRaise(WithoutGil([&] { return ChatTemplate::Load(place); }));
          },
          nb::arg("model"),
          "The template of a model's folder, a GGUF file or a model given by its "
          "name.")
      .def_static(
          "parse",
          [](const std::string& jinja, const std::string& bos_token, const std::string& eos_token) {
            return ValueOrRaise(ChatTemplate::Parse(jinja, bos_token, eos_token));
          },
          nb::arg("jinja"), nb::arg("bos_token") = "", nb::arg("eos_token") = "")
      .def_prop_ro("is_plain", &ChatTemplate::is_plain,
                   "Whether the model does not have its own template.")
      .def_prop_ro("has_place_for_tools", &ChatTemplate::HasPlaceForTools,
                   "Whether it reads functions. Otherwise they are added in a generic form.")
      .def(
          "render",
          [](const ChatTemplate& self, const std::string& messages,
             const std::optional<std::string>& tools, const std::string& variables,
             bool add_generation_prompt, bool continue_final_message, double now) {
            const auto parts = ValueOrRaise(
                RenderChat(self, InputOf(messages, tools, variables, add_generation_prompt,
                                         continue_final_message, now)));
            std::vector<std::pair<std::string, bool>> pairs;
            for (const MarkedText& part : parts) {
              pairs.emplace_back(part.text, part.special == SpecialTokens::kParse);
            }
            return pairs;
          },
          nb::arg("messages"), nb::kw_only(), nb::arg("tools") = nb::none(),
          nb::arg("variables") = "{}", nb::arg("add_generation_prompt") = true,
          nb::arg("continue_final_message") = false, nb::arg("now") = 0.0,
          "The parts of a prompt, and whether each is the template's own. Texts are JSON. `now`,\n"
          "in seconds since 1970, is for templates that print the date.")
      .def(
          "encode",
          [](const ChatTemplate& self, const Tokenizer& tokenizer, const std::string& messages,
             const std::optional<std::string>& tools, const std::string& variables,
             bool add_generation_prompt, bool continue_final_message, double now) {
            const ChatInput input = InputOf(messages, tools, variables, add_generation_prompt,
                                            continue_final_message, now);
            return ArrayOf<TokenId>(
                ValueOrRaise(WithoutGil([&] { return EncodeChat(self, tokenizer, input); })));
          },
          nb::arg("tokenizer"), nb::arg("messages"), nb::kw_only(), nb::arg("tools") = nb::none(),
          nb::arg("variables") = "{}", nb::arg("add_generation_prompt") = true,
          nb::arg("continue_final_message") = false, nb::arg("now") = 0.0,
          "The ids of a prompt. Arguments as for render.")
      .def(
          "end_token_ids",
          [](const ChatTemplate& self, const Tokenizer& tokenizer) {
            return EndTokenIds(self, tokenizer);
          },
          nb::arg("tokenizer"), "The tokens that end an answer, for `stop_tokens`.");
  AddRepr(chat, {"is_plain", "has_place_for_tools"});
}

}  // namespace tandem::python
