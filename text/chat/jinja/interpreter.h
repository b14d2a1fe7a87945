#ifndef TANDEM_TEXT_CHAT_JINJA_INTERPRETER_H_
#define TANDEM_TEXT_CHAT_JINJA_INTERPRETER_H_

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "text/chat/jinja/jinja_template.h"
#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/syntax_tree.h"
#include "text/chat/jinja/value.h"

namespace tandem::jinja {

// Variables and their values. A name that is not found here is looked up in the parent scope.
class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}

  void Set(std::string_view name, Value value);  // `name` must outlive the scope
  // Returns null if the name has no value. Adds the number of names compared to `num_compared`.
  const Value* Find(std::string_view name, size_t* num_compared) const;
  Scope* parent() const { return parent_; }
  size_t size() const { return variables_.size(); }
  // Whether a macro refers to this scope, which must then be kept until the rendering ends.
  bool is_kept = false;

 private:
  Scope* const parent_;
  std::vector<std::pair<std::string_view, Value>> variables_;
  MemoryHold held_{sizeof(std::unique_ptr<Scope>) +
                   sizeof(std::vector<std::pair<std::string_view, Value>>)};
};

// One rendering of a template.
class Interpreter {
 public:
  Interpreter(const Template::Variables& variables, absl::Time now, const Limits& limits);
  ~Interpreter();

  absl::StatusOr<MarkedText> Run(const Nodes& body);

 private:
  enum class Flow { kOn, kBreak, kContinue };
  using FlowOr = absl::StatusOr<Flow>;
  using ValueOr = absl::StatusOr<Value>;

  // ---- Expressions ----
  ValueOr Evaluate(const Node& node);
  ValueOr EvaluateKind(const Node& node);
  ValueOr EvaluateName(const Node& node);
  ValueOr EvaluateList(const Node& node);
  ValueOr EvaluateDict(const Node& node);
  ValueOr EvaluateItem(const Node& node);
  ValueOr EvaluateSlice(const Node& node);
  ValueOr EvaluateCall(const Node& node);
  ValueOr CallValue(const Value& callee, const Arguments& arguments);
  ValueOr EvaluateFilter(const Node& node, const Value* in_place_of_first);
  ValueOr EvaluateTest(const Node& node);
  ValueOr EvaluateSign(const Node& node);
  ValueOr EvaluateChain(const Node& node);
  ValueOr EvaluateConcat(const Node& node);
  ValueOr EvaluateCompare(const Node& node);
  ValueOr EvaluateLogic(const Node& node);
  ValueOr EvaluateChoice(const Node& node);
  absl::StatusOr<Arguments> EvaluateArguments(const CallArguments& arguments);

  // ---- Statements ----
  FlowOr Execute(const Nodes& body);
  FlowOr ExecuteNode(const Node& node);
  FlowOr ExecuteIf(const Node& node);
  FlowOr ExecuteFor(const Node& node);
  FlowOr ExecuteWith(const Node& node);
  FlowOr ExecuteScoped(const Nodes& body);
  // Returns the elements of `iterable` that pass the loop's filter.
  absl::StatusOr<std::vector<Value>> LoopItems(const Node& node, const Value& iterable);
  absl::Status ExecuteOutput(const Node& node);
  absl::Status ExecuteSet(const Node& node);
  absl::Status ExecuteSetBlock(const Node& node);
  absl::Status ExecuteCallBlock(const Node& node);
  absl::Status ExecuteFilterBlock(const Node& node);
  absl::Status Assign(const Node& target, Value value);
  absl::Status Write(const MarkedText& text);
  absl::Status WriteValue(const Value& value);
  // Returns the text that a body writes. The body gets its own scope.
  absl::StatusOr<Value> Capture(const Nodes& body);
  Value MacroOf(const Node& node);
  absl::StatusOr<Value> CallMacro(const Node& macro, Scope* scope, const Arguments& arguments);
  absl::StatusOr<Value> MakeNamespace(const Arguments& arguments);

  void PushScope(Scope* parent);
  void PopScope();
  // Set a variable in the current scope, and find one in it or the scopes around it; null if the
  // name has no value.
  absl::Status SetVariable(std::string_view name, Value value);
  absl::StatusOr<const Value*> FindVariable(std::string_view name);
  // Returns `status`, and makes the line of `node` the error's line unless there is one already.
  absl::Status At(const Node& node, absl::Status status);
  absl::Status CheckExtent(const Value& value) const;

  Runtime runtime_;
  std::vector<std::unique_ptr<Scope>> scopes_;  // the last one is current
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  // Every reference cycle goes through a namespace: the destructor clears these to break them.
  std::vector<Value> namespaces_;
  MarkedText* out_ = nullptr;
  int error_line_ = 0;
};

}  // namespace tandem::jinja

#endif  // TANDEM_TEXT_CHAT_JINJA_INTERPRETER_H_
