// 16 lanes of f32 in the compiler's vectors of 16 bytes, which it lowers for CPUs that do not have
// them. Without fused multiply-adds. simd_avx512.h has the same names, and their contracts.
#ifndef TANDEM_KERNELS_CPU_ISA_SIMD_PORTABLE_H_
#define TANDEM_KERNELS_CPU_ISA_SIMD_PORTABLE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tandem {
namespace {

inline constexpr int kLanes = 16;
typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));
typedef uint32_t Word4 __attribute__((vector_size(16)));
struct Floats {
  Float4 part[4];
};

// For 16 registers of four lanes: 8 to 12 of them hold sums.
inline constexpr int kMaxGroupRows = 3;
inline constexpr int SliceVectors(int rows) { return rows == 1 ? 2 : 1; }
inline constexpr int kScoreRows = 1;
inline constexpr int kMixRows = 2;
inline constexpr int kMixVectors = 1;

// Returns the Floats whose part `i` is `expression`.
#define TANDEM_FOR_PARTS(expression)                      \
  Floats out;                                             \
  for (int i = 0; i < 4; ++i) out.part[i] = (expression); \
  return out

inline Float4 SplatPart(float x) { return Float4{x, x, x, x}; }
inline Floats Splat(float x) { TANDEM_FOR_PARTS(SplatPart(x)); }
inline Floats Zero() { return Splat(0.0f); }
inline Floats Load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline void Store(float* p, const Floats& v) { std::memcpy(p, &v, sizeof(v)); }
inline Floats LoadPart(const float* p, int count) {
  if (count == kLanes) return Load(p);
  float lanes[kLanes] = {};
  for (int i = 0; i < count; ++i) lanes[i] = p[i];
  return Load(lanes);
}
inline void StorePart(float* p, const Floats& v, int count) {
  if (count == kLanes) return Store(p, v);
  float lanes[kLanes];
  Store(lanes, v);
  for (int i = 0; i < count; ++i) p[i] = lanes[i];
}

inline Floats Add(const Floats& a, const Floats& b) { TANDEM_FOR_PARTS(a.part[i] + b.part[i]); }
inline Floats Sub(const Floats& a, const Floats& b) { TANDEM_FOR_PARTS(a.part[i] - b.part[i]); }
inline Floats Mul(const Floats& a, const Floats& b) { TANDEM_FOR_PARTS(a.part[i] * b.part[i]); }
inline Floats Div(const Floats& a, const Floats& b) { TANDEM_FOR_PARTS(a.part[i] / b.part[i]); }
inline Floats MulAdd(const Floats& a, const Floats& b, const Floats& c) {
  TANDEM_FOR_PARTS(a.part[i] * b.part[i] + c.part[i]);
}
inline Floats Min(const Floats& a, const Floats& b) {
  TANDEM_FOR_PARTS(a.part[i] < b.part[i] ? a.part[i] : b.part[i]);
}
inline Floats Max(const Floats& a, const Floats& b) {
  TANDEM_FOR_PARTS(a.part[i] > b.part[i] ? a.part[i] : b.part[i]);
}

inline Floats KeepLanes(const Floats& v, int begin, int end, const Floats& other) {
  const Int4 lane = {0, 1, 2, 3};
  TANDEM_FOR_PARTS(((lane + 4 * i >= begin) & (lane + 4 * i < end)) ? v.part[i] : other.part[i]);
}
inline Float4 TimesPowerOfTwoPart(Float4 x, Float4 n) {
  // Uses two factors, because 2^n may be subnormal or infinite.
  const Int4 whole = __builtin_convertvector(n, Int4);
  const Int4 half = whole >> 1;
  return x * (Float4)((half + 127) << 23) * (Float4)((whole - half + 127) << 23);
}
inline Floats TimesPowerOfTwo(const Floats& x, const Floats& n) {
  TANDEM_FOR_PARTS(TimesPowerOfTwoPart(x.part[i], n.part[i]));
}
inline Floats LowBitsAsExponent(const Floats& x) {
  TANDEM_FOR_PARTS((Float4)((Word4)x.part[i] << 23));
}

inline float Sum(const Floats& v) {
  const Float4 four = (v.part[0] + v.part[2]) + (v.part[1] + v.part[3]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}
inline float Largest(const Floats& v) {
  const Floats swapped = {{v.part[2], v.part[3], v.part[0], v.part[1]}};
  const Floats eight = Max(v, swapped);
  const Float4 four = eight.part[0] > eight.part[1] ? eight.part[0] : eight.part[1];
  const float even = four[0] > four[2] ? four[0] : four[2];
  const float odd = four[1] > four[3] ? four[1] : four[3];
  return even > odd ? even : odd;
}

inline Word4 LoadWords(const std::byte* p) {
  Word4 words;
  std::memcpy(&words, p, sizeof(words));
  return words;
}
inline Floats EvenBf16(const std::byte* pairs) {
  TANDEM_FOR_PARTS((Float4)(LoadWords(pairs + 16 * i) << 16));
}
inline Floats OddBf16(const std::byte* pairs) {
  TANDEM_FOR_PARTS((Float4)(LoadWords(pairs + 16 * i) & 0xFFFF0000u));
}
// Widens the f16 bits in the low half of each word. After they are shifted into f32's position, the
// exponent is 112 too small, for normal numbers and subnormals alike; an exact multiplication by
// 2^112 corrects it. Infinities and NaN get f32's largest exponent instead.
inline Float4 F16Part(Word4 bits) {
  const Word4 sign = (bits & 0x8000u) << 16;
  const Word4 rest = (bits & 0x7FFFu) << 13;
  const Word4 number = (Word4)((Float4)rest * 0x1p112f);
  const Word4 special = rest | 0x7F800000u;
  return (Float4)(sign | (rest >= (0x7C00u << 13) ? special : number));
}
inline Floats EvenF16(const std::byte* pairs) {
  TANDEM_FOR_PARTS(F16Part(LoadWords(pairs + 16 * i) & 0xFFFFu));
}
inline Floats OddF16(const std::byte* pairs) {
  TANDEM_FOR_PARTS(F16Part(LoadWords(pairs + 16 * i) >> 16));
}
inline Floats WidenF16Row(const std::byte* p) {
  uint16_t halves[kLanes];
  std::memcpy(halves, p, sizeof(halves));
  uint32_t words[kLanes];
  for (int i = 0; i < kLanes; ++i) words[i] = halves[i];
  return EvenF16(reinterpret_cast<const std::byte*>(words));
}
inline Floats WidenBf16(const std::byte* p) {
  uint16_t halves[kLanes];
  std::memcpy(halves, p, sizeof(halves));
  uint32_t words[kLanes];
  for (int i = 0; i < kLanes; ++i) words[i] = uint32_t{halves[i]} << 16;
  Floats v;
  std::memcpy(&v, words, sizeof(v));
  return v;
}
inline Floats WidenInt8(const std::byte* p) {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<int8_t>(static_cast<uint8_t>(p[i]));
  return Load(lanes);
}
inline void NarrowToInt8(int8_t* p, const Floats& v) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(v.part[i / 4][i % 4]);
}
inline Floats Int8OfWords(const std::byte* words, int j) {
  TANDEM_FOR_PARTS(
      __builtin_convertvector(((Int4)(LoadWords(words + 16 * i) << (24 - 8 * j))) >> 24, Float4));
}
#undef TANDEM_FOR_PARTS

struct Words {
  uint32_t lane[kLanes];
};
inline void Pin(Words&) {}
inline Words SplatWord(uint32_t x) {
  Words v;
  for (int i = 0; i < kLanes; ++i) v.lane[i] = x;
  return v;
}
inline Words LoadWords16(const uint32_t* p) {
  Words v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline void StoreWords16(uint32_t* p, const Words& v) { std::memcpy(p, &v, sizeof(v)); }
inline Words AddWords(const Words& a, const Words& b) {
  Words out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = a.lane[i] + b.lane[i];
  return out;
}
inline Words SubPairs(const Words& a, const Words& b) {
  Words out;
  for (int i = 0; i < kLanes; ++i) {
    out.lane[i] = (a.lane[i] & 0xFFFF0000u) - (b.lane[i] & 0xFFFF0000u);
    out.lane[i] |= (a.lane[i] - b.lane[i]) & 0xFFFFu;
  }
  return out;
}
inline Words ScalePairs(const Words& v, int16_t factor) {
  Words out;
  for (int i = 0; i < kLanes; ++i) {
    out.lane[i] = (v.lane[i] & 0xFFFF0000u) * static_cast<uint32_t>(factor);
    out.lane[i] |= v.lane[i] * static_cast<uint32_t>(factor) & 0xFFFFu;
  }
  return out;
}
inline Words DotWithPairs(const Words& v, int16_t factor) {
  Words out;
  for (int i = 0; i < kLanes; ++i) {
    const int sum = static_cast<int16_t>(v.lane[i]) + static_cast<int16_t>(v.lane[i] >> 16);
    out.lane[i] = static_cast<uint32_t>(sum * factor);
  }
  return out;
}
inline Words XorWords(const Words& a, const Words& b) {
  Words out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = a.lane[i] ^ b.lane[i];
  return out;
}
inline Words AndWords(const Words& a, const Words& b) {
  Words out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = a.lane[i] & b.lane[i];
  return out;
}
inline Words OrWords(const Words& a, const Words& b) {
  Words out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = a.lane[i] | b.lane[i];
  return out;
}
inline Words ShiftWords(const Words& v, int count) {
  Words out;
  for (int i = 0; i < kLanes; ++i) {
    out.lane[i] = count >= 0 ? v.lane[i] << count : v.lane[i] >> -count;
  }
  return out;
}
inline Words LookUp(const uint8_t (&table)[16], const Words& indices) {
  Words out;
  for (int i = 0; i < kLanes; ++i) {
    out.lane[i] = 0;
    for (int byte = 0; byte < 32; byte += 8) {
      out.lane[i] |= uint32_t{table[indices.lane[i] >> byte & 15]} << byte;
    }
  }
  return out;
}
inline Words LowNibbles(const Words& a) {
  Words out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = a.lane[i] & 0x0F0F0F0Fu;
  return out;
}
inline Words HighNibbles(const Words& a) {
  Words out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = a.lane[i] >> 4 & 0x0F0F0F0Fu;
  return out;
}
struct PlainDot {
  static constexpr bool kHasPairs = false;
  static constexpr bool kIsSigned = false;
  static Words Dot(const Words& sum, const Words& a, const Words& b) {
    Words out = sum;
    for (int i = 0; i < kLanes; ++i) {
      for (int byte = 0; byte < 32; byte += 8) {
        out.lane[i] += static_cast<uint32_t>(static_cast<int32_t>(a.lane[i] >> byte & 255) *
                                             static_cast<int8_t>(b.lane[i] >> byte & 255));
      }
    }
    return out;
  }
};
inline Floats SignedToFloats(const Words& v) {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<float>(static_cast<int32_t>(v.lane[i]));
  return Load(lanes);
}
inline void MulWide(const Words& a, const Words& b, Words* high, Words* low) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t product = uint64_t{a.lane[i]} * b.lane[i];
    high->lane[i] = static_cast<uint32_t>(product >> 32);
    low->lane[i] = static_cast<uint32_t>(product);
  }
}
inline void TransposeWords(Words w[4]) {
  Words out[4];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int word = 0; word < 4; ++word) {
      out[lane % 4].lane[lane / 4 * 4 + word] = w[word].lane[lane];
    }
  }
  for (int j = 0; j < 4; ++j) w[j] = out[j];
}
inline Floats ToFloats(const Words& v) {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<float>(v.lane[i]);
  return Load(lanes);
}
inline uint32_t AtMost(const Floats& a, const Floats& b) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i)
    bits |= uint32_t{a.part[i / 4][i % 4] <= b.part[i / 4][i % 4]} << i;
  return bits;
}
inline uint32_t IsNan(const Floats& a) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i)
    bits |= uint32_t{a.part[i / 4][i % 4] != a.part[i / 4][i % 4]} << i;
  return bits;
}

inline void FetchNear(const void* p) { __builtin_prefetch(p, 0, 3); }
inline void FetchFar(const void* p) { __builtin_prefetch(p, 0, 2); }

// Transposes four columns of four rows.
inline void TransposeFour(const float* const* rows, int first_col, float* out, int out_stride) {
  Float4 row[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&row[i], rows[i] + first_col, sizeof(Float4));
  const Float4 low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const Float4 high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Float4 low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Float4 high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const Float4 cols[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                          __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                          __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                          __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int c = 0; c < 4; ++c) std::memcpy(out + c * out_stride, &cols[c], sizeof(Float4));
}

inline void Transpose(const float* const* rows, int first_col, int cols, float* out,
                      int out_stride) {
  const int whole = cols / 4 * 4;
  for (int c = 0; c < whole; c += 4) {
    for (int r = 0; r < 16; r += 4) {
      TransposeFour(rows + r, first_col + c, out + c * out_stride + r, out_stride);
    }
  }
  for (int c = whole; c < cols; ++c) {
    for (int r = 0; r < 16; ++r) out[c * out_stride + r] = rows[r][first_col + c];
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ISA_SIMD_PORTABLE_H_
