#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <tandem/engine.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "python/engine_handle.h"
#include "python/pickling.h"
#include "python/representation.h"
#include "python/status_errors.h"

namespace tandem::python {
namespace {

namespace nb = nanobind;

// A method that asks the engine for something by its own name.
template <typename Answer>
auto Asking(Answer (Engine::*method)() const) {
  return [method](EngineHandle& self) {
    return self.With([method](const Engine& engine) { return (engine.*method)(); });
  };
}

}  // namespace

void BindEngine(nb::module_& module) {
  auto info = nb::class_<ModelInfo>(module, "ModelInfo", "Facts about a model.");
  info.def_ro("path", &ModelInfo::path)
      .def_ro("family", &ModelInfo::family)
      .def_ro("dtype", &ModelInfo::dtype)
      .def_ro("parameters", &ModelInfo::parameters)
      .def_ro("bytes_read_per_pass", &ModelInfo::bytes_read_per_pass)
      .def_ro("kv_cache", &ModelInfo::kv_cache)
      .def_ro("kv_bytes_per_token", &ModelInfo::kv_bytes_per_token)
      .def_ro("vocab_size", &ModelInfo::vocab_size)
      .def_ro("context_length", &ModelInfo::context_length)
      .def_ro("num_pages", &ModelInfo::num_pages)
      .def_ro("page_size", &ModelInfo::page_size)
      .def_ro("window", &ModelInfo::window)
      .def_ro("mapped_tokens", &ModelInfo::mapped_tokens)
      .def_ro("quantize", &ModelInfo::quantize)
      .def_ro("head_tokens", &ModelInfo::head_tokens)
      .def_ro("head_coverage", &ModelInfo::head_coverage);
  LetPickle<&ModelInfo::path, &ModelInfo::family, &ModelInfo::dtype, &ModelInfo::parameters,
            &ModelInfo::bytes_read_per_pass, &ModelInfo::kv_cache, &ModelInfo::kv_bytes_per_token,
            &ModelInfo::vocab_size, &ModelInfo::context_length, &ModelInfo::num_pages,
            &ModelInfo::page_size, &ModelInfo::window, &ModelInfo::mapped_tokens,
            &ModelInfo::quantize, &ModelInfo::head_tokens, &ModelInfo::head_coverage>(info);
  LetShow(info, {"path", "family", "dtype", "parameters", "vocab_size", "context_length"});
  auto store =
      nb::class_<StoreCounts>(module, "StoreCounts", "Pages of both models in kv_store, so far.");
  store.def_ro("pages_written", &StoreCounts::pages_written)
      .def_ro("bytes_written", &StoreCounts::bytes_written)
      .def_ro("pages_read", &StoreCounts::pages_read)
      .def_ro("bytes_read", &StoreCounts::bytes_read)
      .def_ro("pages_hit", &StoreCounts::pages_hit)
      .def_ro("pages_evicted", &StoreCounts::pages_evicted)
      .def_ro("pages_dropped", &StoreCounts::pages_dropped)
      .def_ro("pages_damaged", &StoreCounts::pages_damaged);
  LetPickle<&StoreCounts::pages_written, &StoreCounts::bytes_written, &StoreCounts::pages_read,
            &StoreCounts::bytes_read, &StoreCounts::pages_hit, &StoreCounts::pages_evicted,
            &StoreCounts::pages_dropped, &StoreCounts::pages_damaged>(store);
  LetShow(store, {"pages_written", "pages_read", "pages_hit", "pages_dropped", "pages_damaged"});
  auto transfer = nb::class_<TransferCounts>(
      module, "TransferCounts", "Pages of both models that travelled (kv_transfer), so far.");
  transfer.def_ro("pages_sent", &TransferCounts::pages_sent)
      .def_ro("bytes_sent", &TransferCounts::bytes_sent)
      .def_ro("pages_received", &TransferCounts::pages_received)
      .def_ro("bytes_received", &TransferCounts::bytes_received)
      .def_ro("pages_hit", &TransferCounts::pages_hit)
      .def_ro("pages_missing", &TransferCounts::pages_missing)
      .def_ro("pages_damaged", &TransferCounts::pages_damaged)
      .def_ro("pages_dropped", &TransferCounts::pages_dropped)
      .def_ro("transfers", &TransferCounts::transfers)
      .def_ro("transfers_failed", &TransferCounts::transfers_failed)
      .def_ro("peers_refused", &TransferCounts::peers_refused)
      .def_ro("leases", &TransferCounts::leases)
      .def_ro("leased_bytes", &TransferCounts::leased_bytes)
      .def_ro("leases_expired", &TransferCounts::leases_expired)
      .def_ro("leases_evicted", &TransferCounts::leases_evicted)
      .def_ro("receiving_seconds", &TransferCounts::receiving_seconds);
  LetPickle<
      &TransferCounts::pages_sent, &TransferCounts::bytes_sent, &TransferCounts::pages_received,
      &TransferCounts::bytes_received, &TransferCounts::pages_hit, &TransferCounts::pages_missing,
      &TransferCounts::pages_damaged, &TransferCounts::pages_dropped, &TransferCounts::transfers,
      &TransferCounts::transfers_failed, &TransferCounts::peers_refused, &TransferCounts::leases,
      &TransferCounts::leased_bytes, &TransferCounts::leases_expired,
      &TransferCounts::leases_evicted, &TransferCounts::receiving_seconds>(transfer);
  LetShow(transfer, {"pages_sent", "pages_received", "pages_hit", "transfers_failed"});
  auto events = nb::class_<KvEventCounts>(module, "KvEventCounts", "Batches of kv_events, so far.");
  events.def_ro("batches_published", &KvEventCounts::batches_published)
      .def_ro("batches_lost", &KvEventCounts::batches_lost);
  LetPickle<&KvEventCounts::batches_published, &KvEventCounts::batches_lost>(events);
  LetShow(events, {"batches_published", "batches_lost"});
  auto load = nb::class_<EngineLoad>(module, "EngineLoad", "The engine between two rounds.");
  load.def_ro("num_running", &EngineLoad::num_running)
      .def_ro("num_waiting", &EngineLoad::num_waiting)
      .def_ro("target_pages_in_use", &EngineLoad::target_pages_in_use)
      .def_ro("draft_pages_in_use", &EngineLoad::draft_pages_in_use)
      .def_ro("stats", &EngineLoad::stats)
      .def_ro("prompt_tokens", &EngineLoad::prompt_tokens)
      .def_ro("prefix_queries", &EngineLoad::prefix_queries)
      .def_ro("prefix_hits", &EngineLoad::prefix_hits)
      .def_ro("draft_prefix_hits", &EngineLoad::draft_prefix_hits)
      .def_ro("preemptions", &EngineLoad::preemptions)
      .def_ro("draft_memory_bytes", &EngineLoad::draft_memory_bytes)
      .def_ro("draft_memory_tenants", &EngineLoad::draft_memory_tenants)
      .def_ro("store", &EngineLoad::store)
      .def_ro("transfer", &EngineLoad::transfer)
      .def_ro("kv_events", &EngineLoad::kv_events);
  LetPickle<&EngineLoad::num_running, &EngineLoad::num_waiting, &EngineLoad::target_pages_in_use,
            &EngineLoad::draft_pages_in_use, &EngineLoad::stats, &EngineLoad::prompt_tokens,
            &EngineLoad::prefix_queries, &EngineLoad::prefix_hits, &EngineLoad::draft_prefix_hits,
            &EngineLoad::preemptions, &EngineLoad::draft_memory_bytes,
            &EngineLoad::draft_memory_tenants, &EngineLoad::store, &EngineLoad::transfer,
            &EngineLoad::kv_events>(load);
  LetShow(load, {"num_running", "num_waiting", "target_pages_in_use", "draft_pages_in_use",
                 "prompt_tokens", "prefix_queries", "prefix_hits", "preemptions", "stats"});
  nb::class_<EngineHandle>(module, "Engine", nb::is_weak_referenceable(),
                           "The engine that tandem.Engine uses. Thread-safe.")
      .def(nb::init<const EngineOptions&>(), nb::arg("options"))
      .def("generate", &EngineHandle::Generate, nb::arg("request"),
           nb::arg("on_piece").none() = nb::none(),
           nb::sig("def generate(self, request: Request, "
                   "on_piece: typing.Callable[[Piece], bool | None] | None = None)"
                   " -> Completion"),
           "Submits and waits. What `on_piece` raises is raised here.")
      .def("submit", &EngineHandle::Submit, nb::arg("request"), nb::arg("on_piece").none(),
           nb::arg("on_done"),
           nb::sig("def submit(self, request: Request, "
                   "on_piece: typing.Callable[[Piece], bool | None] | None, "
                   "on_done: typing.Callable[[Completion | None, Exception | None], object])"
                   " -> int"),
           "Returns at once; callbacks run on threads of the engine's.")
      .def("cancel", &EngineHandle::Cancel, nb::arg("id"))
      .def("close", &EngineHandle::Close)
      .def("check_process", &EngineHandle::CheckProcess, "EngineError in a forked child.")
      .def(
          "check_open", [](EngineHandle& self) { self.With([](Engine&) {}); },
          "EngineError if it is closed, too.")
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
