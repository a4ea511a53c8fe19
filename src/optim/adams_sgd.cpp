#include "adam.hpp"

#include <scape/kernels/loops.hpp>

namespace scape::optim {

namespace {

struct AdamSElement {
    KOKKOS_FORCEINLINE_FUNCTION static void update(const ElementNumbers& n, float g, float& w,
                                                   float& m) {
        adams_element(n, g, w, m);
    }
};

struct SgdElement {
    KOKKOS_FORCEINLINE_FUNCTION static void update(const ElementNumbers& n, float g, float& w,
                                                   float& m) {
        sgd_element(n, g, w, m);
    }
};

// One pass over memory: reads w, g, m; writes w, m. All (n), of one slice.
template <class Element>
void update_slice(const Exec& exec, const char* label, const ElementNumbers& numbers, Span<float> w,
                  Span<const float> g, Span<float> m) {
    kernels::for_each(
        exec, label, static_cast<Index>(w.extent(0)), KOKKOS_LAMBDA(const Index i) {
            float wi = w(i);
            float mi = m(i);
            Element::update(numbers, g(i), wi, mi);
            w(i) = wi;
            m(i) = mi;
        });
}

// The optimizers whose only state is the momentum.
template <class Element>
class OfMomentum : public Optimizer {
   public:
    OfMomentum(const char* label, const config::OptimizerSection& config, Index shard_extent)
        : label_(label),
          config_(config),
          m_("scape::optim::m", static_cast<std::size_t>(shard_extent)) {}

    void update(const Exec& exec, const StepNumbers& numbers, const Slice& part, bool decay,
                Span<float> w, Span<const float> gradient) override {
        check_slice(part, static_cast<Index>(m_.extent(0)), w, gradient);
        const Index begin = part.shard_begin;
        update_slice<Element>(exec, label_, element_numbers(config_, numbers, decay), w, gradient,
                              slice(m_, begin, begin + part.flat.size()));
    }
    std::vector<State> state() override { return {{"m", m_}}; }

   private:
    const char* label_;
    config::OptimizerSection config_;
    Vec<float> m_;  // (shard) first moment; of SGD the velocity
};

}  // namespace

std::unique_ptr<Optimizer> make_adams(const config::OptimizerSection& config, Index shard_extent) {
    return std::make_unique<OfMomentum<AdamSElement>>("scape::optim::adams", config, shard_extent);
}

std::unique_ptr<Optimizer> make_sgd(const config::OptimizerSection& config, Index shard_extent) {
    return std::make_unique<OfMomentum<SgdElement>>("scape::optim::sgd", config, shard_extent);
}

}  // namespace scape::optim
