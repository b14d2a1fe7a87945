// The part of the interpreter that evaluates expressions.
#include <algorithm>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "text/chat/jinja/interpreter.h"
#include "text/chat/jinja/value_text.h"

namespace tandem::jinja {

using Kind = Node::Kind;

Interpreter::ValueOr Interpreter::Evaluate(const Node& node) {
  const absl::Status entered = runtime_.Enter();
  const absl::Cleanup leave = [this] { runtime_.Leave(); };
  if (!entered.ok()) return At(node, entered);
  ValueOr value = EvaluateKind(node);
  if (!value.ok()) return At(node, value.status());
  const absl::Status extent = CheckExtent(*value);
  if (!extent.ok()) return At(node, extent);
  return value;
}

Interpreter::ValueOr Interpreter::EvaluateKind(const Node& node) {
  switch (node.kind) {
    case Kind::kConstant:
      return node.value;
    case Kind::kName:
      return EvaluateName(node);
    case Kind::kList:
    case Kind::kTuple:
      return EvaluateList(node);
    case Kind::kDict:
      return EvaluateDict(node);
    case Kind::kAttribute: {
      ASSIGN_OR_RETURN(const Value object, Evaluate(*node.parts[0]));
      return GetAttribute(object, node.name);
    }
    case Kind::kItem:
      return EvaluateItem(node);
    case Kind::kSlice:
      return EvaluateSlice(node);
    case Kind::kCall:
      return EvaluateCall(node);
    case Kind::kFilter:
      return EvaluateFilter(node, nullptr);
    case Kind::kTest:
      return EvaluateTest(node);
    case Kind::kNegative:
    case Kind::kPositive:
      return EvaluateSign(node);
    case Kind::kNot: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*node.parts[0]));
      return Value::Bool(!value.IsTrue());
    }
    case Kind::kChain:
      return EvaluateChain(node);
    case Kind::kConcat:
      return EvaluateConcat(node);
    case Kind::kCompare:
      return EvaluateCompare(node);
    case Kind::kAnd:
    case Kind::kOr:
      return EvaluateLogic(node);
    case Kind::kChoice:
      return EvaluateChoice(node);
    default:
      return Wrong("found a statement where an expression is expected");  // a bug of the parser
  }
}

Interpreter::ValueOr Interpreter::EvaluateName(const Node& node) {
  ASSIGN_OR_RETURN(const Value* found, FindVariable(node.name));
  if (found != nullptr) return *found;
  if (const Builtin* function = FindFunction(node.name)) return Callable(function, Value());
  return Value::Missing(absl::StrCat(Quoted(node.name), " is undefined"));
}

Interpreter::ValueOr Interpreter::EvaluateList(const Node& node) {
  std::vector<Value> items;
  const MemoryHold held(node.parts.size() * sizeof(Value));
  for (const NodePtr& part : node.parts) {
    ASSIGN_OR_RETURN(items.emplace_back(), Evaluate(*part));
  }
  return Value::OfList(std::move(items),
                       node.kind == Kind::kTuple ? List::Kind::kTuple : List::Kind::kList);
}

Interpreter::ValueOr Interpreter::EvaluateDict(const Node& node) {
  Dict dict;
  for (size_t i = 0; i < node.parts.size(); i += 2) {
    ASSIGN_OR_RETURN(Value key, Evaluate(*node.parts[i]));
    ASSIGN_OR_RETURN(Value value, Evaluate(*node.parts[i + 1]));
    RETURN_IF_ERROR(runtime_.Charge(key.extent().weight));
    RETURN_IF_ERROR(dict.Set(std::move(key), std::move(value)));
  }
  return Value::OfDict(std::move(dict));
}

Interpreter::ValueOr Interpreter::EvaluateItem(const Node& node) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*node.parts[0]));
  ASSIGN_OR_RETURN(const Value key, Evaluate(*node.parts[1]));
  return GetItem(&runtime_, object, key);
}

Interpreter::ValueOr Interpreter::EvaluateSlice(const Node& node) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*node.parts[0]));
  Value bounds[3] = {Value::None(), Value::None(), Value::None()};
  for (size_t i = 0; i < 3; ++i) {
    if (node.parts[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Evaluate(*node.parts[i + 1]));
  }
  return GetSlice(&runtime_, object, bounds[0], bounds[1], bounds[2]);
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const CallArguments& arguments) {
  Arguments values;
  for (const NodePtr& argument : arguments.positional) {
    ASSIGN_OR_RETURN(values.positional.emplace_back(), Evaluate(*argument));
  }
  if (arguments.list != nullptr) {
    ASSIGN_OR_RETURN(const Value list, Evaluate(*arguments.list));
    ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(&runtime_, list));
    values.positional.insert(values.positional.end(), items.begin(), items.end());
    values.held.Add(values.positional.capacity() * sizeof(Value));
  }
  for (const auto& [name, argument] : arguments.named) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    values.named.emplace_back(name, std::move(value));
  }
  if (arguments.dict != nullptr) {
    ASSIGN_OR_RETURN(const Value dict, Evaluate(*arguments.dict));
    if (dict.dict() == nullptr) return Wrong("found ** of a value that is not a dictionary");
    for (const auto& [key, value] : dict.dict()->entries()) {
      RETURN_IF_ERROR(runtime_.Charge(1));
      if (key.text() == nullptr)
        return Wrong("found ** of a dictionary with keys that are not strings");
      values.named.emplace_back(key.text()->text(), value);
      values.held.Add(2 * sizeof(values.named[0]) + key.text()->size());
    }
  }
  return values;
}

Interpreter::ValueOr Interpreter::EvaluateCall(const Node& node) {
  ASSIGN_OR_RETURN(const Value callee, Evaluate(*node.parts[0]));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments));
  return CallValue(callee, arguments);
}

Interpreter::ValueOr Interpreter::CallValue(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) return Wrong(callee.what());
  const Object* object = callee.object();
  if (object == nullptr || object->call() == nullptr) {
    return Wrong("a ", callee.type_name(), " cannot be called");
  }
  return object->call()(&runtime_, arguments);
}

// `in_place_of_first` is the value of a filter without an operand: the text that its block writes.
Interpreter::ValueOr Interpreter::EvaluateFilter(const Node& node, const Value* in_place_of_first) {
  Value value;
  const Node* first = node.parts[0].get();
  if (first == nullptr) {
    value = *in_place_of_first;
  } else if (in_place_of_first != nullptr) {
    ASSIGN_OR_RETURN(value, EvaluateFilter(*first, in_place_of_first));
  } else {
    ASSIGN_OR_RETURN(value, Evaluate(*first));
  }
  if (node.builtin == nullptr) return Wrong("unknown filter ", Quoted(node.name));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments));
  return CallBuiltin(&runtime_, *node.builtin, value, arguments);
}

Interpreter::ValueOr Interpreter::EvaluateTest(const Node& node) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*node.parts[0]));
  if (node.builtin == nullptr) return Wrong("unknown test ", Quoted(node.name));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments));
  ASSIGN_OR_RETURN(const Value result, CallBuiltin(&runtime_, *node.builtin, value, arguments));
  return Value::Bool(result.IsTrue() != node.flag);
}

Interpreter::ValueOr Interpreter::EvaluateSign(const Node& node) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*node.parts[0]));
  const bool is_minus = node.kind == Kind::kNegative;
  if (value.is_float()) return Value::Float(is_minus ? -value.number() : value.number());
  return Calculate(&runtime_, is_minus ? "-" : "+", Value::Int(0), value);
}

Interpreter::ValueOr Interpreter::EvaluateChain(const Node& node) {
  ASSIGN_OR_RETURN(Value value, Evaluate(*node.parts[0]));
  for (size_t i = 1; i < node.parts.size(); ++i) {
    ASSIGN_OR_RETURN(const Value other, Evaluate(*node.parts[i]));
    ASSIGN_OR_RETURN(value, Calculate(&runtime_, node.names[i - 1], value, other));
  }
  return value;
}

Interpreter::ValueOr Interpreter::EvaluateConcat(const Node& node) {
  MarkedText out;
  for (const NodePtr& part : node.parts) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*part));
    ASSIGN_OR_RETURN(const MarkedText text, ToText(&runtime_, value));
    out.Append(text);
  }
  return Value::Text(std::move(out));
}

Interpreter::ValueOr Interpreter::EvaluateCompare(const Node& node) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*node.parts[0]));
  for (size_t i = 1; i < node.parts.size(); ++i) {
    ASSIGN_OR_RETURN(Value right, Evaluate(*node.parts[i]));
    const std::string& operation = node.names[i - 1];
    ASSIGN_OR_RETURN(const bool holds, Compare(&runtime_, operation, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Interpreter::ValueOr Interpreter::EvaluateLogic(const Node& node) {
  const bool ends_at = node.kind == Kind::kOr;
  Value value;
  for (const NodePtr& part : node.parts) {
    ASSIGN_OR_RETURN(value, Evaluate(*part));
    if (value.IsTrue() == ends_at) break;
  }
  return value;
}

Interpreter::ValueOr Interpreter::EvaluateChoice(const Node& node) {
  ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.parts[1]));
  if (condition.IsTrue()) return Evaluate(*node.parts[0]);
  if (node.parts[2] != nullptr) return Evaluate(*node.parts[2]);
  return Value::Missing("an inline if without else has no value when its condition is false");
}

}  // namespace tandem::jinja
