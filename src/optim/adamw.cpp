#include "adam.hpp"

#include <scape/kernels/loops.hpp>

namespace scape::optim {

namespace {

// One pass over memory: reads w, g, m, v; writes w, m, v. All (n), of one slice.
void adamw_slice(const Exec& exec, const ElementNumbers& numbers, Span<float> w,
                 Span<const float> g, Span<float> m, Span<float> v) {
    kernels::for_each(
        exec, "scape::optim::adamw", static_cast<Index>(w.extent(0)), KOKKOS_LAMBDA(const Index i) {
            float wi = w(i);
            float mi = m(i);
            float vi = v(i);
            adamw_element(numbers, g(i), wi, mi, vi);
            w(i) = wi;
            m(i) = mi;
            v(i) = vi;
        });
}

class AdamW : public Optimizer {
   public:
    AdamW(const config::OptimizerSection& config, Index shard_extent)
        : config_(config),
          m_("scape::optim::m", static_cast<std::size_t>(shard_extent)),
          v_("scape::optim::v", static_cast<std::size_t>(shard_extent)) {}

    void update(const Exec& exec, const StepNumbers& numbers, const Slice& part, bool decay,
                Span<float> w, Span<const float> gradient) override {
        check_slice(part, static_cast<Index>(m_.extent(0)), w, gradient);
        const Index begin = part.shard_begin;
        const Index end = begin + part.flat.size();
        adamw_slice(exec, element_numbers(config_, numbers, decay), w, gradient,
                    slice(m_, begin, end), slice(v_, begin, end));
    }
    std::vector<State> state() override { return {{"m", m_}, {"v", v_}}; }

   private:
    config::OptimizerSection config_;
    Vec<float> m_;  // (shard) first moment
    Vec<float> v_;  // (shard) second moment
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const config::OptimizerSection& config, Index shard_extent) {
    return std::make_unique<AdamW>(config, shard_extent);
}

}  // namespace scape::optim
