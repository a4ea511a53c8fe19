#pragma once

#include <scape/optim/dense_exchange.hpp>

#include "support/random.hpp"

namespace scape::test {

/// Sum of the squares of this rank's own pieces, on the host.
inline double local_squares(optim::DenseExchange& exchange) {
    const Vec<double> sum("sum", 1);
    exchange.add_sum_of_squares(Exec(), sum);
    return to_host(sum)[0];
}

}  // namespace scape::test
