// The random numbers of the engine. They are counter based: (seed, stream, position, slot,
// vocabulary entry) determine a number, not the order of calls, so the draws of a sequence do not
// depend on its batch, its draft length or the device. Only this file defines the layout of
// counters.
//
// Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
// (2011).
#ifndef TANDEM_BASE_PHILOX_H_
#define TANDEM_BASE_PHILOX_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"

namespace tandem {

// One Philox4x32-10 block: ten rounds over a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter, uint64_t key);

// The purpose of a random number. Streams are independent of each other.
enum class RandomStream : uint32_t {
  kTarget = 0,    // the target's own choice at an absolute position
  kDraft = 1,     // drawing draft token i of the round that starts at n committed tokens
  kAccept = 2,    // the coin of draft token i of that round
  kResidual = 3,  // the draw after the rejection at slot i of that round
  kChoice = 4,    // the choice of a whole output (ChoiceLaw::kConditional)
};

// The address of a random number. For kTarget and kChoice, `position` is the absolute index of the
// chosen token, or of the output's first, and `slot` is 0. For the other streams, `position` is the
// number of committed tokens at the start of the round, and `slot` the position in the draft. A
// generation never uses a place twice, because its number of committed tokens grows.
struct RandomPlace {
  RandomStream stream = RandomStream::kTarget;
  uint32_t position = 0;
  uint32_t slot = 0;   // below 2^24
  uint32_t retry = 0;  // number of earlier attempts of the same round that used its draft
};

// The random numbers of one sequence. Cheap to copy; thread-safe.
class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : seed_(seed) {}
  uint64_t seed() const { return seed_; }

  // Returns the source of sequence `index` of a request with several sequences; sequence 0 keeps
  // the seed.
  RandomSource ForSequence(uint32_t index) const;

  // Returns the counter of lane 0 at `place`; lane l has l in word kLaneWord. For code that
  // computes many blocks at once.
  static std::array<uint32_t, 4> FirstCounter(const RandomPlace& place);
  static constexpr int kLaneWord = 2;

  // Returns 32 random bits for each of the entries [4 * lane, 4 * lane + 4).
  std::array<uint32_t, 4> Block(const RandomPlace& place, uint32_t lane) const;
  // Uniform in (0, 1): the 23 upper bits plus one half, so that 0 and 1 are impossible.
  float Uniform(const RandomPlace& place) const { return ToUniform(Block(place, 0)[0]); }
  // Uniform in (0, 1), from 52 bits plus one half.
  double UniformDouble(const RandomPlace& place) const;

  static float ToUniform(uint32_t bits);
  // Standard exponential noise -log(1 - u), u = (bits + 1/2) / 2^32. Keeps all 32 bits near u = 0:
  // the smallest value wins a race, so rare tokens need the resolution there.
  static float ToExponential(uint32_t bits);

 private:
  uint64_t seed_;
};

}  // namespace tandem

#endif  // TANDEM_BASE_PHILOX_H_
