#ifndef TANDEM_ENGINE_NEXT_PIECE_H_
#define TANDEM_ENGINE_NEXT_PIECE_H_

#include <optional>

#include "draft/drafter.h"
#include "engine/session.h"

namespace tandem {

// The output of a session that its callbacks have not been given, which counts as delivered from
// now on; nothing if there is none. It refers to the session. `drafter` may be null.
std::optional<Piece> NextPiece(Session* session, const Drafter* drafter);

}  // namespace tandem

#endif  // TANDEM_ENGINE_NEXT_PIECE_H_
