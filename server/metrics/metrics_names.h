// Metrics under the names of vLLM, which routers, autoscalers and dashboards know.
#ifndef TANDEM_SERVER_METRICS_METRICS_NAMES_H_
#define TANDEM_SERVER_METRICS_METRICS_NAMES_H_

#include <string>
#include <vector>

#include "prometheus/metric_family.h"

namespace tandem {

// Those of `families` that vLLM has, too, as it calls them, with its labels `engine` and
// `model_name`.
std::vector<prometheus::MetricFamily> UnderVllmNames(
    const std::vector<prometheus::MetricFamily>& families, const std::string& model_name);

}  // namespace tandem

#endif  // TANDEM_SERVER_METRICS_METRICS_NAMES_H_
