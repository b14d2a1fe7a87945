// What a request may ask for: sequences, tokens and bytes.
#ifndef TANDEM_SERVER_API_REQUEST_LENGTHS_H_
#define TANDEM_SERVER_API_REQUEST_LENGTHS_H_

#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "json/request_fields.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"

namespace tandem {

// The fields of how long prompts and answers may be, as they are sent.
struct LengthFields {
  static constexpr int kWhatFits = -1;
  std::string field = "max_tokens";       // that gave the next
  std::optional<int> max_tokens{};        // or kWhatFits
  std::optional<int> truncated_prompt{};  // to so many tokens, or kWhatFits

  // `names`: of equal meaning; those that are given must agree. 0 is for who may have it.
  void Read(RequestFields* fields, std::initializer_list<const char*> names, bool may_be_zero);
};

// An error of the field `n` or `best_of` if `request` has more sequences than one may.
absl::Status CheckSequences(const ServedModel& model, const ApiRequest& request);

// Sets options.max_tokens and cuts prompts, so that both fit the context and the answer what it may
// hold. `otherwise`: the most tokens without max_tokens.
absl::Status SetLengths(const ServedModel& model, const LengthFields& lengths, int otherwise,
                        ApiRequest* request);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_REQUEST_LENGTHS_H_
