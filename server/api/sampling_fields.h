// The fields of a request for text that say how it is drawn, where it stops and who drafts it: the
// same for every kind of request.
#ifndef TANDEM_SERVER_API_SAMPLING_FIELDS_H_
#define TANDEM_SERVER_API_SAMPLING_FIELDS_H_

#include <optional>
#include <vector>

#include "json/request_fields.h"
#include "server/api/served_model.h"
#include "tandem/json_value.h"
#include "tandem/request.h"
#include "tandem/types.h"

namespace tandem {

// A list of token ids; nothing if it is something else.
std::optional<std::vector<TokenId>> AsTokenIds(const JsonValue& json);

// Each leaves what the request does not name as it is.
void ReadSampling(RequestFields* fields, SamplingParams* sampling);
void ReadStops(RequestFields* fields, Request* options);
// "speculation": {"draft_tokens": 4 or "auto", "drafter": ..., "verifier": ...}, where no other
// member is let pass.
void ReadSpeculation(RequestFields* fields, const ServedModel& model, Request* options);

// "kv_transfer_params": pages that travel between workers, as vLLM has it.
void ReadKvTransfer(RequestFields* fields, Request* options);
// "cache_salt": the tenant, a string that is not empty, as vLLM has it.
void ReadCacheSalt(RequestFields* fields, Request* options);

// Fields of other servers for what is not done here: errors unless they say nothing.
void RefuseUnservedSampling(RequestFields* fields);
// Fields that can have no effect here, whatever they say.
void TakeFieldsWithoutEffect(RequestFields* fields);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_SAMPLING_FIELDS_H_
