// For fuzz targets of JSON readers: documents that are nearly valid.
#ifndef TANDEM_TESTS_JSON_MUTATOR_H_
#define TANDEM_TESTS_JSON_MUTATOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tandem/json_value.h"
#include "tests/fuzzing.h"

namespace tandem {

// Changes single places of documents. A value gets another type or moves to the edge of a range. A
// member is removed, duplicated, renamed, given another member's value, or copied from a sample.
class JsonMutator {
 public:
  using Json = SortedJson;

  // `samples` must outlive the mutator. REQUIRES: !samples.empty().
  JsonMutator(const std::vector<Json>& samples, unsigned seed) : samples_(samples), random_(seed) {}

  const Json& Sample() { return samples_[Below(samples_.size())]; }

  void Mutate(Json* document) {
    for (size_t times = 1 + Below(3); times > 0; --times) MutateOnce(document);
  }

  // Implements LLVMFuzzerCustomMutator for inputs that are JSON. One in `one_of` becomes arbitrary
  // bytes; an input that is not JSON starts again from a sample.
  size_t MutateText(uint8_t* data, size_t size, size_t max_size, size_t one_of = 10) {
    if (Below(one_of) == 0) return LLVMFuzzerMutate(data, size, max_size);
    Json document = Json::parse(data, data + size, nullptr, /*allow_exceptions=*/false);
    if (document.is_discarded()) {
      if (Below(2) == 0) return LLVMFuzzerMutate(data, size, max_size);
      document = Sample();
    }
    Mutate(&document);
    const std::string text = Text(document);
    if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
    std::memcpy(data, text.data(), text.size());
    return text.size();
  }

  static std::string Text(const Json& document) {
    return document.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  size_t Below(size_t end) { return random_() % end; }

 private:
  template <typename Value>  // Json or const Json
  static void AddPlaces(Value* value, std::vector<Value*>* places) {
    places->push_back(value);
    if (!value->is_structured()) return;
    for (Value& member : *value) AddPlaces(&member, places);
  }
  template <typename Value>
  Value* Place(Value* document) {
    std::vector<Value*> places;
    AddPlaces(document, &places);
    return places[Below(places.size())];
  }

  Json Edge() {
    static const std::vector<Json>& edges =
        *new std::vector<Json>{nullptr,
                               true,
                               false,
                               0,
                               1,
                               -1,
                               2,
                               64,
                               65535,
                               std::numeric_limits<int32_t>::max(),
                               int64_t{1} << 31,
                               std::numeric_limits<int64_t>::max(),
                               std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<uint64_t>::max(),
                               -0.0,
                               0.5,
                               1.0,
                               1e-320,
                               1e39,
                               1e308,
                               -1e308,
                               "",
                               "a",
                               std::string(1, '\0'),
                               "\n",
                               "\xc3\xa9",
                               "\xf0\x9f\x98\x80",
                               std::string(300, 'x'),
                               "5",
                               Json::array(),
                               Json::object(),
                               Json::array({nullptr}),
                               Json::array({Json::array()}),
                               Json({{"", 1}}),
                               Json({{"a", {{"b", 2}}}})};
    return edges[Below(edges.size())];
  }

  void MutateOnce(Json* document) {
    Json* place = Place(document);
    switch (Below(6)) {
      case 0:
        *place = Edge();
        break;
      case 1:
        *place = Json(*Place(document));
        break;
      case 2:
        MutateMembers(place);
        break;
      case 3:
        TakeFromSample(place);
        break;
      default:
        MutateScalar(place);
        break;
    }
  }

  void MutateScalar(Json* place) {
    if (place->is_string()) {
      MutateString(place->get_ptr<std::string*>());
    } else if (place->is_number_float()) {
      const double value = place->get<double>();
      const double changed[] = {-value, value * 2, value / 3, value + 1, value * 1e30};
      *place = changed[Below(5)];
    } else if (place->is_number()) {
      const auto value = place->get<uint64_t>();
      const uint64_t changed[] = {0 - value, value * 2, value / 2, value + 1, value - 1};
      *place = static_cast<int64_t>(changed[Below(5)]);
    } else {
      MutateMembers(place);
    }
  }

  void MutateString(std::string* text) {
    const size_t at = Below(text->size() + 1);
    switch (Below(4)) {
      case 0:
        text->resize(at);
        break;
      case 1:
        text->insert(at, 1, static_cast<char>(Below(128)));
        break;
      case 2:
        text->insert(at, text->substr(0, 20));
        break;
      default: {
        std::string bytes = *text;
        bytes.resize(text->size() + 8);
        bytes.resize(
            LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), text->size(), bytes.size()));
        *text = bytes;
      }
    }
  }

  void MutateMembers(Json* place) {
    if (place->is_array()) {
      if (place->empty() || Below(4) == 0) return place->push_back(Edge());
      const size_t at = Below(place->size());
      if (Below(2) == 0) return place->erase(at);
      place->insert(place->begin() + at, Json((*place)[at]));
    } else if (place->is_object() && !place->empty()) {
      auto member = place->begin();
      std::advance(member, Below(place->size()));
      const Json value = member.value();
      if (Below(2) == 0) place->erase(member);
      if (Below(2) == 0) (*place)[SampleName()] = value;
    } else {
      *place = Edge();
    }
  }

  // Copies a member of a sample to the member of that name, or any value of a sample to `place`.
  void TakeFromSample(Json* place) {
    const Json& sample = Sample();
    if (place->is_object() && sample.is_object() && !sample.empty()) {
      auto member = sample.begin();
      std::advance(member, Below(sample.size()));
      (*place)[member.key()] = member.value();
    } else {
      *place = *Place(&sample);
    }
  }

  std::string SampleName() {
    const Json* const place = Place(&Sample());
    if (!place->is_object() || place->empty()) return "a";
    auto member = place->begin();
    std::advance(member, Below(place->size()));
    return member.key();
  }

  const std::vector<Json>& samples_;
  std::minstd_rand random_;
};

// REQUIRES: each text is JSON.
inline std::vector<SortedJson> ParseAll(const std::vector<std::string>& texts) {
  std::vector<SortedJson> documents;
  for (const std::string& text : texts) documents.push_back(SortedJson::parse(text));
  return documents;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_JSON_MUTATOR_H_
