#ifndef TANDEM_INCLUDE_TANDEM_OWNED_PIECE_H_
#define TANDEM_INCLUDE_TANDEM_OWNED_PIECE_H_

#include "engine/owned_piece.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_OWNED_PIECE_H_
