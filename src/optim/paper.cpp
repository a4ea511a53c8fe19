#include "scape_owner.hpp"

#include <scape/kernels/loops.hpp>

namespace scape::optim {

namespace {

// Bits of an element's flag.
constexpr std::uint8_t in_last = 1;  // it was in the last mask
constexpr std::uint8_t in_this = 2;  // it is in this step's: only while the step is applied

struct Was {
    const std::uint8_t* flags;  // (shard)
    bool all;                   // everything travelled last time
    KOKKOS_FORCEINLINE_FUNCTION bool operator()(Index element) const {
        return all || (flags[element] & in_last) != 0;
    }
};

// abar becomes ghat, in place, and its summands of the norm.
void to_gradient(const Exec& exec, const ElementNumbers& numbers, const Where& at, const Was& was,
                 Index n, Span<const float> z, Span<float> sums, Span<float> out) {
    kernels::for_each(
        exec, "scape::optim::paper_gradient", n, KOKKOS_LAMBDA(Index j) {
            const Index e = at.in_shard(j);
            const float ghat = paper_gradient(numbers, was(e), z(e), sums(at.in_sums(j)));
            sums(at.in_sums(j)) = ghat;
            out(j) = ghat;
        });
}

void update_mask(const Exec& exec, const ElementNumbers& numbers, const Where& at, const Was& was,
                 Index n, Span<float> sums, Span<float> z, Span<std::uint8_t> flags,
                 Span<float> master, Span<float> back) {
    const bool clear = !at.compact;
    const bool sent = back.extent(0) > 0;
    kernels::for_each(
        exec, "scape::optim::paper", n, KOKKOS_LAMBDA(Index j) {
            // What is scattered over memory is asked for in time.
            const Index soon = j + kernels::fetch_ahead < n ? j + kernels::fetch_ahead : j;
            kernels::prefetch_to_write(&flags(at.in_shard(soon)));
            kernels::prefetch_to_write(&z(at.in_shard(soon)));
            kernels::prefetch_to_write(&master(at.in_piece(soon)));
            kernels::prefetch_to_write(&sums(at.in_sums(soon)));

            const Index e = at.in_shard(j);
            const Index i = at.in_piece(j);
            float w = master(i);
            float m = paper_state(numbers, was(e), z(e)).m_prev;
            adams_element(numbers, sums(at.in_sums(j)), w, m);
            z(e) = m;
            flags(e) |= in_this;
            master(i) = w;
            if (sent) back(j) = w;
            if (clear) sums(at.in_bucket(j)) = 0.f;
        });
}

// z = base off the mask; this mask becomes the last one.
void settle(const Exec& exec, float b1, const Was& was, Index begin, Index n, Span<float> z,
            Span<std::uint8_t> flags) {
    kernels::for_each(
        exec, "scape::optim::paper_base", n, KOKKOS_LAMBDA(Index j) {
            const Index e = begin + j;
            const bool in = (flags(e) & in_this) != 0;
            const float factor = was(e) && !in ? b1 : 1.f;
            z(e) *= factor;
            flags(e) = in ? in_last : 0;
        });
}

void update_all(const Exec& exec, const ElementNumbers& numbers, const Where& at, const Was& was,
                Index n, Span<const float> sums, Span<float> z, Span<float> master) {
    kernels::for_each(
        exec, "scape::optim::paper_all", n, KOKKOS_LAMBDA(Index j) {
            const Index e = at.shard + j;
            float w = master(j);
            float m = paper_state(numbers, was(e), z(e)).m_prev;
            adams_element(numbers, sums(j), w, m);
            z(e) = m;
            master(j) = w;
        });
}

void scores(const Exec& exec, const ElementNumbers& numbers, const Was& was, Index shard,
            Span<const float> a, Span<const float> z, Span<float> score) {
    kernels::for_each(
        exec, "scape::optim::paper_score", static_cast<Index>(a.extent(0)), KOKKOS_LAMBDA(Index j) {
            score(j) = paper_score(numbers, was(shard + j), z(shard + j), a(j));
        });
}

class Paper : public ScapeOwner {
   public:
    Paper(const config::RunConfig& config, const FlatLayout& layout, const Sharding& sharding,
          int rank, Masks& masks)
        : ScapeOwner(config, layout, sharding, rank, masks),
          z_("scape::optim::z", static_cast<std::size_t>(sharding.shard_extent())),
          flags_("scape::optim::in_last_mask", static_cast<std::size_t>(sharding.shard_extent())) {}

    void arrived(const Exec& exec, const Arrived& a) override {
        if (a.all && last_all_) {
            squares_.add(exec, a.bucket, a.sums);
            return;
        }
        const auto out = slice(scratch_, 0, a.count());
        to_gradient(exec, betas(), where(a), was(), a.count(), z_, a.sums, out);
        squares_.add(exec, a.bucket, out);
    }

    void update(const Exec& exec, const StepNumbers& numbers, const Arrived& a,
                const Weights& weights) override {
        const ElementNumbers n = decay(exec, numbers, a, weights);
        const Where at = where(a);
        if (a.all) {
            update_all(exec, n, at, was(), a.count(), a.sums, z_, weights.master);
            return;
        }
        update_mask(exec, n, at, was(), a.count(), a.sums, z_, flags_, weights.master,
                    weights.back);
        const Range piece = sharding_.shard_piece(a.bucket);
        settle(exec, n.b1, was(), piece.begin, piece.size(), z_, flags_);
    }

    void end_step(const Exec&) override { last_all_ = masks_.all(); }

    std::vector<State> state() override { return {{"z", z_}, {"in_last_mask", flags_}}; }
    Index state_bytes() const override {
        return z_.span() * sizeof(float) + flags_.span() + scratch_.span() * sizeof(float);
    }
    std::map<std::string, double> numbers() const override {
        return {{"scape_last_mask_all", last_all_ ? 1.0 : 0.0}};
    }
    void set_numbers(const std::map<std::string, double>& numbers) override {
        last_all_ = numbers.at("scape_last_mask_all") > 0;
    }

   protected:
    void score(const Exec& exec, int bucket, Span<const float> a, Span<float> score) override {
        scores(exec, betas(), was(), sharding_.shard_piece(bucket).begin, a, z_, score);
    }

   private:
    ElementNumbers betas() const { return element_numbers(config_, {}, false); }
    Was was() const { return {flags_.data(), last_all_}; }

    Vec<float> z_;             // (shard) m on the last mask, what is to be paid elsewhere
    Vec<std::uint8_t> flags_;  // (shard)
    bool last_all_ = true;     // at the start nothing is to be paid anywhere: z = 0
};

}  // namespace

std::unique_ptr<Scape> make_paper(const config::RunConfig& config, const FlatLayout& layout,
                                  const Sharding& sharding, int rank, Masks& masks) {
    return std::make_unique<Paper>(config, layout, sharding, rank, masks);
}

}  // namespace scape::optim
