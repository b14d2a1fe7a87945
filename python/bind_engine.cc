#include <tandem/engine.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "python/engine_handle.h"

namespace tandem::python {
namespace {

namespace nb = nanobind;

// Returns a method that calls the engine's method of the same name.
template <typename Answer>
auto Asking(Answer (Engine::*method)() const) {
  return [method](EngineHandle& self) {
    return self.With([method](const Engine& engine) { return (engine.*method)(); });
  };
}

}  // namespace

void BindEngine(nb::module_& module) {
  auto info = nb::class_<ModelInfo>(module, "ModelInfo", "Facts about a model.");
  AddReadOnly<&ModelInfo::path, &ModelInfo::family, &ModelInfo::dtype, &ModelInfo::parameters,
              &ModelInfo::bytes_read_per_pass, &ModelInfo::kv_cache, &ModelInfo::kv_bytes_per_token,
              &ModelInfo::vocab_size, &ModelInfo::context_length, &ModelInfo::num_pages,
              &ModelInfo::page_size, &ModelInfo::window, &ModelInfo::mapped_tokens,
              &ModelInfo::mask_token, &ModelInfo::quantize, &ModelInfo::head_tokens,
              &ModelInfo::head_coverage>(info);
  AddRepr(info, {"path", "family", "dtype", "parameters", "vocab_size", "context_length"});
  auto text = nb::class_<DraftTextInfo>(module, "DraftTextInfo", "Texts to draft from.");
  text.def_prop_ro(
      "created",
      [](const DraftTextInfo& self) {
        return absl::ToDoubleSeconds(self.created - absl::UnixEpoch());
      },
      "Seconds since 1970.");
  AddReadOnly<&DraftTextInfo::id, &DraftTextInfo::name, &DraftTextInfo::num_texts,
              &DraftTextInfo::num_tokens, &DraftTextInfo::bytes>(text);
  AddRepr(text, {"id", "name", "num_texts", "num_tokens", "bytes"});
  auto store =
      nb::class_<StoreCounts>(module, "StoreCounts", "Counts of pages of both models in kv_store.");
  AddReadOnly<&StoreCounts::pages_written, &StoreCounts::bytes_written, &StoreCounts::pages_read,
              &StoreCounts::bytes_read, &StoreCounts::pages_hit, &StoreCounts::pages_evicted,
              &StoreCounts::pages_dropped, &StoreCounts::pages_damaged>(store);
  AddRepr(store, {"pages_written", "pages_read", "pages_hit", "pages_dropped", "pages_damaged"});
  auto transfer = nb::class_<TransferCounts>(
      module, "TransferCounts",
      "Counts of pages of both models sent between workers (kv_transfer).");
  AddReadOnly<
      &TransferCounts::pages_sent, &TransferCounts::bytes_sent, &TransferCounts::pages_received,
      &TransferCounts::bytes_received, &TransferCounts::pages_hit, &TransferCounts::pages_missing,
      &TransferCounts::pages_damaged, &TransferCounts::pages_dropped, &TransferCounts::transfers,
      &TransferCounts::transfers_failed, &TransferCounts::peers_refused, &TransferCounts::leases,
      &TransferCounts::leased_bytes, &TransferCounts::leases_expired,
      &TransferCounts::leases_evicted, &TransferCounts::receiving_seconds>(transfer);
  AddRepr(transfer, {"pages_sent", "pages_received", "pages_hit", "transfers_failed"});
  auto events =
      nb::class_<KvEventCounts>(module, "KvEventCounts", "Counts of batches of kv_events.");
  AddReadOnly<&KvEventCounts::batches_published, &KvEventCounts::batches_lost>(events);
  AddRepr(events, {"batches_published", "batches_lost"});
  auto load =
      nb::class_<EngineLoad>(module, "EngineLoad", "The state of the engine between two rounds.");
  AddReadOnly<&EngineLoad::num_running, &EngineLoad::num_waiting, &EngineLoad::target_pages_in_use,
              &EngineLoad::draft_pages_in_use, &EngineLoad::stats, &EngineLoad::prompt_tokens,
              &EngineLoad::prefix_queries, &EngineLoad::prefix_hits, &EngineLoad::draft_prefix_hits,
              &EngineLoad::preemptions, &EngineLoad::draft_memory_bytes,
              &EngineLoad::draft_memory_tenants, &EngineLoad::draft_text_bytes, &EngineLoad::store,
              &EngineLoad::transfer, &EngineLoad::kv_events>(load);
  AddRepr(load, {"num_running", "num_waiting", "target_pages_in_use", "draft_pages_in_use",
                 "prompt_tokens", "prefix_queries", "prefix_hits", "preemptions", "stats"});
  nb::class_<EngineHandle>(module, "Engine", nb::is_weak_referenceable(),
                           "The engine that tandem.Engine uses. Thread-safe.")
      .def(nb::init<const EngineOptions&>(), nb::arg("options"))
      .def("generate", &EngineHandle::Generate, nb::arg("request"),
           nb::arg("on_piece").none() = nb::none(),
           nb::sig("def generate(self, request: Request, "
                   "on_piece: typing.Callable[[Piece], bool | None] | None = None)"
                   " -> Completion"),
           "Submits and waits. An exception of `on_piece` is raised here.")
      .def("submit", &EngineHandle::Submit, nb::arg("request"), nb::arg("on_piece").none(),
           nb::arg("on_done"),
           nb::sig("def submit(self, request: Request, "
                   "on_piece: typing.Callable[[Piece], bool | None] | None, "
                   "on_done: typing.Callable[[Completion | None, Exception | None], object])"
                   " -> int"),
           "Returns at once. Callbacks run on threads of the engine.")
      .def("cancel", &EngineHandle::Cancel, nb::arg("id"))
      .def(
          "add_draft_text",
          [](EngineHandle& self, std::vector<std::string> texts, std::string name,
             std::string cache_salt) {
            const DraftTextInput input{.name = std::move(name),
                                       .texts = std::move(texts),
                                       .cache_salt = std::move(cache_salt)};
            return ValueOrRaise(
                self.With([&input](Engine& engine) { return engine.AddDraftText(input); }));
          },
          nb::arg("texts"), nb::arg("name"), nb::arg("cache_salt"))
      .def(
          "draft_texts",
          [](EngineHandle& self, const std::string& cache_salt) {
            return self.With(
                [&cache_salt](const Engine& engine) { return engine.DraftTexts(cache_salt); });
          },
          nb::arg("cache_salt"))
      .def(
          "remove_draft_text",
          [](EngineHandle& self, const std::string& id, const std::string& cache_salt) {
            RaiseUnlessOk(
                self.With([&](Engine& engine) { return engine.RemoveDraftText(id, cache_salt); }));
          },
          nb::arg("id"), nb::arg("cache_salt"))
      .def("close", &EngineHandle::Close)
      .def("check_process", &EngineHandle::CheckProcess, "Raises EngineError in a forked child.")
      .def(
          "check_open", [](EngineHandle& self) { self.With([](Engine&) {}); },
          "As check_process, and raises EngineError if the engine is closed.")
      .def("check_integrity",
           [](EngineHandle& self) {
             RaiseUnlessOk(self.With([](Engine& engine) { return engine.CheckIntegrity(); }));
           })
      .def_prop_ro("stats", Asking(&Engine::stats))
      .def_prop_ro("load", Asking(&Engine::load))
      .def_prop_ro("target_info", Asking(&Engine::target_info))
      .def_prop_ro("draft_info", Asking(&Engine::draft_info))
      .def_prop_ro("device_description", Asking(&Engine::device_description))
      .def_prop_ro(
          "drafter",
          [](EngineHandle& self) {
            return std::string(NameOf(self.With([](Engine& engine) { return engine.drafter(); })));
          })
      .def_prop_ro("drafters", [](EngineHandle& self) {
        std::vector<std::string> names;
        for (const DrafterKind kind : self.With([](Engine& engine) { return engine.drafters(); })) {
          names.emplace_back(NameOf(kind));
        }
        return names;
      });
}

}  // namespace tandem::python
