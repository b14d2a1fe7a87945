#include "text/token_kinds.h"

#include <cstddef>
#include <utility>

namespace tandem {

TokenList KindedTokens::List() const {
  TokenList list{.tokens = tokens, .is_text = {}, .path = path};
  for (const TokenKind kind : kinds) {
    list.is_text.push_back(kind == TokenKind::kNormal || kind == TokenKind::kUserDefined ||
                           kind == TokenKind::kUnused);
  }
  return list;
}

std::vector<AddedToken> KindedTokens::AddedTokens() const {
  std::vector<AddedToken> added;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const bool is_special = IsSpecial(static_cast<TokenId>(id));
    if (tokens[id].empty() || (!is_special && kinds[id] != TokenKind::kUserDefined)) continue;
    AddedToken token;
    token.id = static_cast<TokenId>(id);
    token.content = tokens[id];
    token.written = tokens[id];
    token.special = is_special;
    token.is_literal = true;
    added.push_back(std::move(token));
  }
  return added;
}

}  // namespace tandem
