#include "server/answer_writer.h"

#include <utility>

#include "server/api_response.h"
#include "server/responses_writer.h"

namespace tandem {

std::unique_ptr<AnswerWriter> AnswerWriter::Make(const ApiRequest* request,
                                                 const ServedModel* model, AnswerStamp stamp) {
  if (request->is_response) {
    return std::make_unique<ResponsesWriter>(request, model, std::move(stamp));
  }
  return std::make_unique<ApiResponse>(request, model, std::move(stamp));
}

}  // namespace tandem
