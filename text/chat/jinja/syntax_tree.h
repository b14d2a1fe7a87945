#ifndef TANDEM_TEXT_CHAT_JINJA_SYNTAX_TREE_H_
#define TANDEM_TEXT_CHAT_JINJA_SYNTAX_TREE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/value.h"

namespace tandem::jinja {

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Nodes = std::vector<NodePtr>;  // optional parts that are absent are null

// The arguments of a call, unevaluated.
struct CallArguments {
  Nodes positional;
  std::vector<std::pair<std::string, NodePtr>> named;
  NodePtr list;  // *list
  NodePtr dict;  // **dict
};

// A part of a template. Its kind decides which members are used; "?" marks optional ones:
//
//   kind        | members
//   ------------|------------------------------------------------------------------
//   kConstant   | value
//   kName       | name
//   kList       | parts: elements; the same for kTuple
//   kDict       | parts: key, value, key, value ...
//   kAttribute  | parts: the object; name
//   kItem       | parts: the object, the key
//   kSlice      | parts: the object, start?, stop?, step?
//   kCall       | parts: the callee; arguments
//   kFilter     | parts: the value, null in filter and set blocks; name, builtin?, arguments
//   kTest       | parts: the value; name, builtin?, arguments; flag: negated
//   kNegative   | parts: the operand; the same for kPositive and kNot
//   kChain      | parts: n operands; names: n - 1 of + - * / // % **, evaluated from the left
//   kConcat     | parts: operands of ~
//   kCompare    | parts: n operands; names: n - 1 of == != < <= > >= in, not in
//   kAnd, kOr   | parts: operands
//   kChoice     | parts: the value, the condition, the other value?
//   kOutput     | parts: expressions
//   kText       | value: the template's own text
//   kIf         | parts: conditions; bodies: one for each, and one for else?
//   kFor        | parts: target, iterable, filter?; bodies: the loop's, and that of else
//   kSet        | parts: target, value
//   kSetBlock   | parts: target, filter?; bodies: one
//   kMacro      | name; names: parameters; defaults: of the last parameters; bodies: one
//   kCallBlock  | parts: a kCall; names, defaults, bodies: as in kMacro
//   kFilterBlock| parts: a kFilter; bodies: one
//   kWith       | parts: target, value, target, value ...; bodies: one
//   kBody       | bodies: one, which is executed in its own scope
//   kMember     | the target name.names[0], a member of a namespace
//   kBreak, kContinue
struct Node {
  enum class Kind {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,
    kAttribute,
    kItem,
    kSlice,
    kCall,
    kFilter,
    kTest,
    kNegative,
    kPositive,
    kNot,
    kChain,
    kConcat,
    kCompare,
    kAnd,
    kOr,
    kChoice,
    kOutput,
    kText,
    kIf,
    kFor,
    kSet,
    kSetBlock,
    kMacro,
    kCallBlock,
    kFilterBlock,
    kWith,
    kBody,
    kMember,
    kBreak,
    kContinue,
  };
  Kind kind;
  int line = 0;
  Value value;
  std::string name;
  std::vector<std::string> names;
  Nodes parts;
  Nodes defaults;
  std::vector<Nodes> bodies;
  CallArguments arguments;
  const Builtin* builtin = nullptr;
  bool flag = false;
  int depth = 1;  // levels of nested nodes, this one included
};

}  // namespace tandem::jinja

#endif  // TANDEM_TEXT_CHAT_JINJA_SYNTAX_TREE_H_
