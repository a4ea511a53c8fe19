#include "adam.hpp"

#include <scape/kernels/loops.hpp>

namespace scape::optim {

namespace {

// One pass over memory: reads w, g, m; writes w, m. All (n), of one slice.
void adams_slice(const Exec& exec, const ElementNumbers& numbers, Span<float> w,
                 Span<const float> g, Span<float> m) {
    kernels::for_each(
        exec, "scape::optim::adams", static_cast<Index>(w.extent(0)), KOKKOS_LAMBDA(const Index i) {
            float wi = w(i);
            float mi = m(i);
            adams_element(numbers, g(i), wi, mi);
            w(i) = wi;
            m(i) = mi;
        });
}

class AdamS : public Optimizer {
   public:
    AdamS(const config::OptimizerSection& config, Index shard_extent)
        : config_(config), m_("scape::optim::m", static_cast<std::size_t>(shard_extent)) {}

    void update(const Exec& exec, const StepNumbers& numbers, const Slice& part, bool decay,
                Span<float> w, Span<const float> gradient) override {
        check_slice(part, static_cast<Index>(m_.extent(0)), w, gradient);
        const Index begin = part.shard_begin;
        adams_slice(exec, element_numbers(config_, numbers, decay), w, gradient,
                    slice(m_, begin, begin + part.flat.size()));
    }
    std::vector<State> state() override { return {{"m", m_}}; }

   private:
    config::OptimizerSection config_;
    Vec<float> m_;  // (shard) first moment
};

}  // namespace

std::unique_ptr<Optimizer> make_adams(const config::OptimizerSection& config, Index shard_extent) {
    return std::make_unique<AdamS>(config, shard_extent);
}

}  // namespace scape::optim
