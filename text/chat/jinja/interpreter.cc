#include "text/chat/jinja/interpreter.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "text/chat/jinja/parser.h"
#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/syntax_tree.h"
#include "text/chat/jinja/value.h"
#include "text/chat/jinja/value_text.h"

namespace tandem::jinja {
namespace {

// namespace(a=1): the only value that assignments can change.
class Namespace : public Object {
 public:
  Namespace() : Object("namespace") {}
  std::optional<Value> Attribute(std::string_view name) const override {
    const Value* found = members_.Find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  void Set(std::string_view name, Value value) { members_.Set(name, std::move(value)); }
  void Clear() { members_ = Dict(); }

 private:
  Dict members_;
};

class Macro : public Object {
 public:
  Macro(const Node* node, Function call) : Object("macro", std::move(call)), node_(*node) {}
  std::optional<Value> Attribute(std::string_view name) const override {
    if (name == "name") return Value::Own(node_.name);
    return std::nullopt;
  }

 private:
  const Node& node_;
};

Value FunctionValue(Object::Function call, const Extent& held = {}) {
  return Value::OfObject(std::make_shared<Object>("function", std::move(call), held));
}

// The variable `loop` in the body of a loop.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  // `items` are the elements of a value with the extent `extent`.
  Loop(std::vector<Value> items, const Extent& extent)
      : Object("loop", nullptr, extent),
        items_(std::move(items)),
        items_held_(items_.capacity() * sizeof(Value)) {}

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
    if (name == "depth") return Value::Int(1);  // loops are not recursive here
    if (name == "depth0") return Value::Int(0);
    if (name == "cycle") return Cycle();
    if (name == "changed") return Changed();
    if (name == "previtem" && at > 0) return items_[index_ - 1];
    if (name == "nextitem" && at + 1 < size) return items_[index_ + 1];
    return std::nullopt;
  }

  const std::vector<Value>& items() const { return items_; }
  void GoTo(size_t index) { index_ = index; }
  // Drops the arguments of loop.changed, one of which may be the loop itself.
  void Finish() {
    is_finished_ = true;
    last_changed_.reset();
  }

 private:
  // loop.cycle(a, b): returns the arguments in turn, one for each iteration.
  Value Cycle() const {
    return FunctionValue([i = index_](Runtime*, const Arguments& given) -> absl::StatusOr<Value> {
      if (given.positional.empty()) return Wrong("cycle needs at least one argument");
      return given.positional[i % given.positional.size()];
    });
  }
  // loop.changed(a, b): whether the arguments differ from those of the call before, if any.
  Value Changed() const {
    auto call = [loop = shared_from_this()](Runtime* runtime,
                                            const Arguments& arguments) -> absl::StatusOr<Value> {
      const Value now = Value::OfList(arguments.positional);
      RETURN_IF_ERROR(runtime->Charge(now.extent().weight));
      const bool changes = !loop->last_changed_.has_value() || !Equal(*loop->last_changed_, now);
      if (!loop->is_finished_) loop->last_changed_ = now;
      return Value::Bool(changes);
    };
    return FunctionValue(std::move(call), extent());
  }

  const std::vector<Value> items_;
  const MemoryHold items_held_;
  size_t index_ = 0;
  bool is_finished_ = false;
  mutable std::optional<Value> last_changed_;
};

using Kind = Node::Kind;

constexpr size_t kLongestTemplate = size_t{1} << 20;  // bytes
constexpr size_t kNamesPerStep = 8;                   // comparisons that cost one step

}  // namespace

absl::StatusOr<Template> Template::Parse(std::string_view source) {
  if (source.size() > kLongestTemplate) {
    return Wrong("has ", source.size(), " bytes, allowed: at most ", kLongestTemplate);
  }
  if (const size_t invalid = FindInvalidUtf8(source); invalid != source.npos) {
    return Wrong("is not UTF-8 (at byte ", invalid, ")");
  }
  ASSIGN_OR_RETURN(Nodes body, ParseTemplate(source));
  return Template(std::move(body));
}

absl::StatusOr<MarkedText> Template::Render(const Variables& variables, absl::Time now,
                                            const Limits& limits) const {
  return Interpreter(variables, now, limits).Run(*body_);
}

// ---- Scopes ----

void Scope::Set(std::string_view name, Value value) {
  for (auto& [own, old] : variables_) {
    if (own == name) {
      old = std::move(value);
      return;
    }
  }
  variables_.emplace_back(name, std::move(value));
  held_.Add(2 * sizeof(variables_[0]));
}

const Value* Scope::Find(std::string_view name, size_t* num_compared) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    ++*num_compared;
    for (const auto& [own, value] : scope->variables_) {
      ++*num_compared;
      if (own == name) return &value;
    }
  }
  return nullptr;
}

absl::Status Interpreter::SetVariable(std::string_view name, Value value) {
  RETURN_IF_ERROR(runtime_.Charge(scopes_.back()->size() / kNamesPerStep));
  scopes_.back()->Set(name, std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<const Value*> Interpreter::FindVariable(std::string_view name) {
  size_t num_compared = 0;
  const Value* found = scopes_.back()->Find(name, &num_compared);
  RETURN_IF_ERROR(runtime_.Charge(num_compared / kNamesPerStep));
  return found;
}

void Interpreter::PushScope(Scope* parent) { scopes_.push_back(std::make_unique<Scope>(parent)); }

void Interpreter::PopScope() {
  if (scopes_.back()->is_kept) kept_scopes_.push_back(std::move(scopes_.back()));
  scopes_.pop_back();
}

// ---- The rendering ----

Interpreter::Interpreter(const Template::Variables& variables, absl::Time now, const Limits& limits)
    : runtime_{.limits = limits, .now = now, .steps_left = limits.steps} {
  PushScope(nullptr);
  scopes_.back()->Set("namespace", FunctionValue([this](Runtime*, const Arguments& arguments) {
                        return MakeNamespace(arguments);
                      }));
  for (const auto& [name, value] : variables) scopes_.back()->Set(name, value);
  PushScope(scopes_.back().get());
}

Interpreter::~Interpreter() {
  for (const Value& value : namespaces_) static_cast<Namespace*>(value.object())->Clear();
}

absl::StatusOr<MarkedText> Interpreter::Run(const Nodes& body) {
  MarkedText out;
  out_ = &out;
  const FlowOr flow = Execute(body);
  if (flow.ok()) {
    out.LeaveMeter();
    return out;
  }
  const absl::Status& status = flow.status();
  const std::string line = absl::StrCat("line ", error_line_);
  return absl::Status(status.code(), runtime_.is_raised
                                         ? absl::StrCat(status.message(), " (", line, ")")
                                         : absl::StrCat(line, ": ", status.message()));
}

absl::Status Interpreter::At(const Node& node, absl::Status status) {
  if (error_line_ == 0) error_line_ = node.line;
  return status;
}

absl::Status Interpreter::CheckExtent(const Value& value) const {
  const Extent extent = value.extent();
  if (extent.depth > runtime_.limits.value_depth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("makes values nested more than ", runtime_.limits.value_depth, " deep"));
  }
  if (extent.weight > runtime_.limits.value_weight) {
    return absl::ResourceExhaustedError(
        absl::StrCat("makes a value of more than ", runtime_.limits.value_weight, " elements"));
  }
  return absl::OkStatus();
}

absl::Status Interpreter::Write(const MarkedText& text) {
  RETURN_IF_ERROR(runtime_.ChargeBytes(text.size()));
  RETURN_IF_ERROR(runtime_.CheckRoom(text.memory_bytes()));
  if (out_->size() + text.size() > runtime_.limits.output_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("writes more than ", runtime_.limits.output_bytes, " bytes"));
  }
  out_->Append(text);
  return absl::OkStatus();
}

absl::Status Interpreter::WriteValue(const Value& value) {
  if (value.text() != nullptr) return Write(*value.text());
  ASSIGN_OR_RETURN(const MarkedText text, ToText(&runtime_, value));
  return Write(text);
}

// ---- Statements ----

Interpreter::FlowOr Interpreter::Execute(const Nodes& body) {
  for (const NodePtr& node : body) {
    const absl::Status entered = runtime_.Enter();
    const absl::Cleanup leave = [this] { runtime_.Leave(); };
    if (!entered.ok()) return At(*node, entered);
    FlowOr flow = ExecuteNode(*node);
    if (!flow.ok()) return At(*node, flow.status());
    if (*flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::FlowOr Interpreter::ExecuteNode(const Node& node) {
  switch (node.kind) {
    case Kind::kText:
      RETURN_IF_ERROR(Write(*node.value.text()));
      return Flow::kOn;
    case Kind::kOutput:
      RETURN_IF_ERROR(ExecuteOutput(node));
      return Flow::kOn;
    case Kind::kIf:
      return ExecuteIf(node);
    case Kind::kFor:
      return ExecuteFor(node);
    case Kind::kSet:
      RETURN_IF_ERROR(ExecuteSet(node));
      return Flow::kOn;
    case Kind::kSetBlock:
      RETURN_IF_ERROR(ExecuteSetBlock(node));
      return Flow::kOn;
    case Kind::kMacro:
      RETURN_IF_ERROR(SetVariable(node.name, MacroOf(node)));
      return Flow::kOn;
    case Kind::kCallBlock:
      RETURN_IF_ERROR(ExecuteCallBlock(node));
      return Flow::kOn;
    case Kind::kFilterBlock:
      RETURN_IF_ERROR(ExecuteFilterBlock(node));
      return Flow::kOn;
    case Kind::kWith:
      return ExecuteWith(node);
    case Kind::kBody:
      return ExecuteScoped(node.bodies[0]);
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
    default:
      return Wrong("found an expression where a statement is expected");  // a bug of the parser
  }
}

absl::Status Interpreter::ExecuteOutput(const Node& node) {
  for (const NodePtr& part : node.parts) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*part));
    RETURN_IF_ERROR(WriteValue(value));
  }
  return absl::OkStatus();
}

Interpreter::FlowOr Interpreter::ExecuteIf(const Node& node) {
  for (size_t i = 0; i < node.parts.size(); ++i) {
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.parts[i]));
    if (condition.IsTrue()) return Execute(node.bodies[i]);
  }
  const bool has_else = node.bodies.size() > node.parts.size();
  return has_else ? Execute(node.bodies.back()) : Flow::kOn;
}

absl::StatusOr<std::vector<Value>> Interpreter::LoopItems(const Node& node, const Value& iterable) {
  ASSIGN_OR_RETURN(std::vector<Value> items, Elements(&runtime_, iterable));
  const Node* filter = node.parts[2].get();
  if (filter == nullptr) return items;
  const MemoryHold held(2 * items.size() * sizeof(Value));
  PushScope(scopes_.back().get());
  const absl::Cleanup pop = [this] { PopScope(); };
  std::vector<Value> wanted;
  for (const Value& item : items) {
    RETURN_IF_ERROR(Assign(*node.parts[0], item));
    ASSIGN_OR_RETURN(const Value is_wanted, Evaluate(*filter));
    if (is_wanted.IsTrue()) wanted.push_back(item);
  }
  return wanted;
}

Interpreter::FlowOr Interpreter::ExecuteFor(const Node& node) {
  ASSIGN_OR_RETURN(const Value iterable, Evaluate(*node.parts[1]));
  ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(node, iterable));
  if (items.empty()) return ExecuteScoped(node.bodies[1]);
  const auto loop = std::make_shared<Loop>(std::move(items), iterable.extent());
  const absl::Cleanup finish = [&loop] { loop->Finish(); };
  const Value loop_value = Value::OfObject(loop);
  for (size_t i = 0; i < loop->items().size(); ++i) {
    loop->GoTo(i);
    RETURN_IF_ERROR(runtime_.Charge(8));  // the cost of a scope
    PushScope(scopes_.back().get());
    const absl::Cleanup pop = [this] { PopScope(); };
    RETURN_IF_ERROR(SetVariable("loop", loop_value));
    RETURN_IF_ERROR(Assign(*node.parts[0], loop->items()[i]));
    ASSIGN_OR_RETURN(const Flow flow, Execute(node.bodies[0]));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kOn;
}

Interpreter::FlowOr Interpreter::ExecuteScoped(const Nodes& body) {
  PushScope(scopes_.back().get());
  const absl::Cleanup pop = [this] { PopScope(); };
  return Execute(body);
}

Interpreter::FlowOr Interpreter::ExecuteWith(const Node& node) {
  std::vector<Value> values;
  for (size_t i = 1; i < node.parts.size(); i += 2) {
    ASSIGN_OR_RETURN(values.emplace_back(), Evaluate(*node.parts[i]));
  }
  PushScope(scopes_.back().get());
  const absl::Cleanup pop = [this] { PopScope(); };
  for (size_t i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(Assign(*node.parts[2 * i], values[i]));
  }
  return Execute(node.bodies[0]);
}

absl::Status Interpreter::ExecuteSet(const Node& node) {
  ASSIGN_OR_RETURN(Value value, Evaluate(*node.parts[1]));
  return Assign(*node.parts[0], std::move(value));
}

absl::StatusOr<Value> Interpreter::Capture(const Nodes& body) {
  MarkedText captured;
  MarkedText* const outer = std::exchange(out_, &captured);
  const absl::Cleanup restore = [this, outer] { out_ = outer; };
  ASSIGN_OR_RETURN(const Flow flow, ExecuteScoped(body));
  if (flow != Flow::kOn) return Wrong("break or continue leaves a set, filter or macro block");
  return Value::Text(std::move(captured));
}

absl::Status Interpreter::ExecuteSetBlock(const Node& node) {
  ASSIGN_OR_RETURN(Value value, Capture(node.bodies[0]));
  if (node.parts[1] != nullptr) {
    ASSIGN_OR_RETURN(value, EvaluateFilter(*node.parts[1], &value));
  }
  return Assign(*node.parts[0], std::move(value));
}

absl::Status Interpreter::ExecuteFilterBlock(const Node& node) {
  ASSIGN_OR_RETURN(const Value captured, Capture(node.bodies[0]));
  ASSIGN_OR_RETURN(const Value value, EvaluateFilter(*node.parts[0], &captured));
  return WriteValue(value);
}

absl::Status Interpreter::ExecuteCallBlock(const Node& node) {
  const Node& call = *node.parts[0];
  ASSIGN_OR_RETURN(const Value callee, Evaluate(*call.parts[0]));
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(call.arguments));
  arguments.named.emplace_back("caller", MacroOf(node));
  ASSIGN_OR_RETURN(const Value value, CallValue(callee, arguments));
  return WriteValue(value);
}

absl::Status Interpreter::Assign(const Node& target, Value value) {
  if (target.kind == Kind::kName) return SetVariable(target.name, std::move(value));
  if (target.kind == Kind::kMember) {
    ASSIGN_OR_RETURN(const Value* found, FindVariable(target.name));
    auto* space = found == nullptr ? nullptr : dynamic_cast<Namespace*>(found->object());
    if (space == nullptr) {
      return Wrong("only members of namespaces can be set, and ", Quoted(target.name),
                   " is not a namespace");
    }
    space->Set(target.names[0], std::move(value));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(&runtime_, value));
  if (items.size() != target.parts.size()) {
    return Wrong("found ", items.size(), " values for ", target.parts.size(),
                 " names, allowed: the same number");
  }
  for (size_t i = 0; i < items.size(); ++i) RETURN_IF_ERROR(Assign(*target.parts[i], items[i]));
  return absl::OkStatus();
}

// ---- Macros and namespaces ----

Value Interpreter::MacroOf(const Node& node) {
  for (Scope* scope = scopes_.back().get(); scope != nullptr; scope = scope->parent()) {
    scope->is_kept = true;
  }
  auto call = [this, &node, scope = scopes_.back().get()](Runtime*, const Arguments& arguments) {
    return CallMacro(node, scope, arguments);
  };
  return Value::OfObject(std::make_shared<Macro>(&node, std::move(call)));
}

absl::StatusOr<Value> Interpreter::CallMacro(const Node& macro, Scope* scope,
                                             const Arguments& arguments) {
  const size_t num_names = macro.names.size();
  if (arguments.positional.size() > num_names) {
    return Wrong("the macro ", macro.name, " takes at most ", num_names, " arguments, found ",
                 arguments.positional.size());
  }
  // Each named argument is compared with the parameters' names.
  RETURN_IF_ERROR(runtime_.Charge(num_names + num_names * arguments.named.size() / kNamesPerStep));
  PushScope(scope);
  const absl::Cleanup pop = [this] { PopScope(); };
  std::vector<std::optional<Value>> given(num_names);
  std::copy(arguments.positional.begin(), arguments.positional.end(), given.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(macro.names.begin(), macro.names.end(), name);
    const auto index = static_cast<size_t>(found - macro.names.begin());
    if (found != macro.names.end() && !given[index].has_value()) {
      given[index] = value;
    } else if (name == "caller") {
      RETURN_IF_ERROR(SetVariable("caller", value));
    } else {
      return Wrong("the macro ", macro.name, " does not accept the argument ", Quoted(name),
                   found == macro.names.end() ? "" : " twice");
    }
  }
  const size_t first_default = num_names - macro.defaults.size();
  for (size_t i = 0; i < num_names; ++i) {
    if (!given[i].has_value() && i >= first_default) {
      ASSIGN_OR_RETURN(given[i], Evaluate(*macro.defaults[i - first_default]));
    }
    Value value =
        given[i].has_value()
            ? *std::move(given[i])
            : Value::Missing(absl::StrCat("the argument ", macro.names[i], " was not given"));
    RETURN_IF_ERROR(SetVariable(macro.names[i], std::move(value)));
  }
  return Capture(macro.bodies[0]);
}

absl::StatusOr<Value> Interpreter::MakeNamespace(const Arguments& arguments) {
  RETURN_IF_ERROR(runtime_.Charge(16));
  const auto made = std::make_shared<Namespace>();
  namespaces_.push_back(Value::OfObject(made));
  for (const Value& value : arguments.positional) {
    if (value.dict() == nullptr) return Wrong("namespace: the argument is not a dictionary");
    for (const auto& [key, member] : value.dict()->entries()) {
      RETURN_IF_ERROR(runtime_.Charge(1));
      if (key.text() != nullptr) made->Set(key.text()->text(), member);
    }
  }
  for (const auto& [name, value] : arguments.named) made->Set(name, value);
  return namespaces_.back();
}

}  // namespace tandem::jinja
