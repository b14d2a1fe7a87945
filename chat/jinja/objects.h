// The objects that a rendering makes.
#ifndef TANDEM_CHAT_JINJA_OBJECTS_H_
#define TANDEM_CHAT_JINJA_OBJECTS_H_

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/syntax_tree.h"
#include "chat/jinja/value.h"

namespace tandem::jinja {

// namespace(a=1): the only thing that assignments change.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "namespace"; }
  std::optional<Value> Attribute(std::string_view name) const override {
    const Value* found = members_.Find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  void Set(std::string_view name, Value value) { members_.Set(name, std::move(value)); }
  void Clear() { members_ = Dict(); }

 private:
  Dict members_;
};

// The function `namespace`.
class NamespaceMaker : public Object {
 public:
  explicit NamespaceMaker(Interpreter* interpreter) : interpreter_(interpreter) {}
  std::string_view type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime*, const Arguments& arguments) override {
    return interpreter_->MakeNamespace(arguments);
  }

 private:
  Interpreter* const interpreter_;
};

class Macro : public Object {
 public:
  Macro(Interpreter* interpreter, const Node* node, Scope* scope)
      : interpreter_(interpreter), node_(*node), scope_(scope) {}
  std::string_view type_name() const override { return "macro"; }
  bool is_callable() const override { return true; }
  std::optional<Value> Attribute(std::string_view name) const override {
    if (name == "name") return Value::Own(node_.name);
    return std::nullopt;
  }
  absl::StatusOr<Value> Call(Runtime*, const Arguments& arguments) override {
    return interpreter_->CallMacro(node_, scope_, arguments);
  }

 private:
  Interpreter* const interpreter_;
  const Node& node_;
  Scope* const scope_;
};

// loop.cycle(a, b): one of them after another.
class Cycle : public Object {
 public:
  explicit Cycle(size_t index) : index_(index) {}
  std::string_view type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime*, const Arguments& arguments) override {
    if (arguments.positional.empty()) return Wrong("cycle is given nothing");
    return arguments.positional[index_ % arguments.positional.size()];
  }

 private:
  const size_t index_;
};

// `loop` in the body of a loop.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  // `items`: elements of a value of this extent.
  Loop(std::vector<Value> items, const Extent& extent)
      : Object(extent), items_(std::move(items)), items_held_(items_.capacity() * sizeof(Value)) {}

  std::string_view type_name() const override { return "loop"; }
  std::optional<Value> Attribute(std::string_view name) const override {
    const auto at = static_cast<int64_t>(index_);
    const auto size = static_cast<int64_t>(items_.size());
    if (name == "index") return Value::Int(at + 1);
    if (name == "index0") return Value::Int(at);
    if (name == "revindex") return Value::Int(size - at);
    if (name == "revindex0") return Value::Int(size - at - 1);
    if (name == "first") return Value::Bool(at == 0);
    if (name == "last") return Value::Bool(at + 1 == size);
    if (name == "length") return Value::Int(size);
    if (name == "depth") return Value::Int(1);  // there are no recursive loops
    if (name == "depth0") return Value::Int(0);
    if (name == "cycle") return Value::OfObject(std::make_shared<Cycle>(index_));
    if (name == "changed") return Value::OfObject(std::make_shared<Changed>(shared_from_this()));
    if (name == "previtem" && at > 0) return items_[index_ - 1];
    if (name == "nextitem" && at + 1 < size) return items_[index_ + 1];
    return std::nullopt;
  }

  const std::vector<Value>& items() const { return items_; }
  void GoTo(size_t index) { index_ = index; }
  // Afterwards it holds its elements alone: an argument of loop.changed may be the loop itself.
  void Finish() {
    is_finished_ = true;
    told_.reset();
  }

 private:
  // loop.changed(a, b): whether it was told something else before, or nothing.
  class Changed : public Object {
   public:
    explicit Changed(std::shared_ptr<const Loop> loop)
        : Object(loop->extent()), loop_(std::move(loop)) {}
    std::string_view type_name() const override { return "function"; }
    bool is_callable() const override { return true; }
    absl::StatusOr<Value> Call(Runtime* runtime, const Arguments& arguments) override {
      const Value now = Value::OfList(arguments.positional);
      RETURN_IF_ERROR(runtime->Charge(now.extent().weight));
      const bool changes = !loop_->told_.has_value() || !Equal(*loop_->told_, now);
      if (!loop_->is_finished_) loop_->told_ = now;
      return Value::Bool(changes);
    }

   private:
    const std::shared_ptr<const Loop> loop_;
  };

  const std::vector<Value> items_;
  const MemoryHold items_held_;
  size_t index_ = 0;
  bool is_finished_ = false;
  mutable std::optional<Value> told_;
};

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_OBJECTS_H_
