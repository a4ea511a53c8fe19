#include "scape_owner.hpp"

#include <scape/base/fence.hpp>
#include <scape/kernels/loops.hpp>

#include <algorithm>
#include <cmath>

namespace scape::optim {

namespace {

// Steps of the shard's elements are counted from 1, skipped ones left out: tau = `now` - last
// visit. `dense`: the last step at which everything travelled, which visited every element.
struct Elapsed {
    const std::uint32_t* visit;  // (shard)
    std::uint32_t now;
    std::uint32_t dense;

    KOKKOS_FORCEINLINE_FUNCTION std::uint32_t operator()(Index element) const {
        const std::uint32_t last = visit[element];
        return now - (last > dense ? last : dense);
    }
};

// Functions of tau: b1^tau and its companion, b2^tau. Beyond the table they no longer change in
// fp32.
struct PowerTable {
    const Powers* table;
    const float* b2;
    std::uint32_t last;
    KOKKOS_FORCEINLINE_FUNCTION std::uint32_t at(std::uint32_t tau) const {
        return tau < last ? tau : last;
    }
    KOKKOS_FORCEINLINE_FUNCTION const Powers& operator()(std::uint32_t tau) const {
        return table[at(tau)];
    }
    KOKKOS_FORCEINLINE_FUNCTION float b2tau(std::uint32_t tau) const { return b2[at(tau)]; }
};

// q/tau by tau, for scores alone: whoever was away for longer than the table reaches counts as if
// for that long, which changes a score by less than 1e-4 of it.
constexpr std::uint32_t longest_scored = 1 << 16;

Vec<float> make_shares(double b1) {
    HostVec<float> host("scape::optim::shares", longest_scored + 1);
    for (std::uint32_t tau = 1; tau <= longest_scored; ++tau) {
        const double q = b1 * (1 - std::pow(b1, tau)) / (1 - b1);
        host(tau) = static_cast<float>(q / tau);
    }
    host(1) = static_cast<float>(b1);
    Vec<float> table("scape::optim::shares", longest_scored + 1);
    Kokkos::deep_copy(table, host);
    return table;
}

std::size_t powers_that_count(double b1, double b2) {
    constexpr double negligible = 1e-30;
    constexpr double most = 1 << 20;
    const double slowest = std::max(b1, b2);
    const double steps =
        slowest > 0 ? std::min(most, std::ceil(std::log(negligible) / std::log(slowest))) : 1;
    return static_cast<std::size_t>(std::max(2.0, steps + 1));
}

Vec<Powers> make_powers(double b1, std::size_t size) {
    HostVec<Powers> host("scape::optim::powers", size);
    for (std::size_t tau = 1; tau < size; ++tau) {
        const double p = std::pow(b1, static_cast<double>(tau));
        host(tau) = {static_cast<float>(p), static_cast<float>(b1 * (1 - p) / (1 - b1))};
    }
    host(1) = {static_cast<float>(b1), static_cast<float>(b1)};
    Vec<Powers> table("scape::optim::powers", size);
    Kokkos::deep_copy(table, host);
    return table;
}

Vec<float> make_b2_powers(double b2, std::size_t size) {
    HostVec<float> host("scape::optim::b2_powers", size);
    for (std::size_t tau = 1; tau < size; ++tau)
        host(tau) = static_cast<float>(std::pow(b2, static_cast<double>(tau)));
    Vec<float> table("scape::optim::b2_powers", size);
    Kokkos::deep_copy(table, host);
    return table;
}

// The moments of the shard.
struct Moments {
    float* m;
    float* v;  // null: AdamS's, from the momentum

    KOKKOS_FORCEINLINE_FUNCTION void step(const ElementNumbers& n, const PowerTable& powers,
                                          std::uint32_t tau, Index e, float sum, float& w) const {
        float mi = m[e];
        if (v == nullptr) {
            catch_up_element(n, powers(tau), static_cast<float>(tau), sum, w, mi);
        } else {
            catch_up_stored_element(n, powers(tau), powers.b2tau(tau), static_cast<float>(tau), sum,
                                    w, mi, v[e]);
        }
        m[e] = mi;
    }
    KOKKOS_FORCEINLINE_FUNCTION void prefetch(Index e) const {
        kernels::prefetch_to_write(m + e);
        if (v != nullptr) kernels::prefetch_to_write(v + e);
    }
    // tau = 1.
    KOKKOS_FORCEINLINE_FUNCTION void dense_step(const ElementNumbers& n, Index e, float sum,
                                                float& w) const {
        if (v == nullptr) {
            adams_element(n, sum, w, m[e]);
        } else {
            adamw_element(n, sum, w, m[e], v[e]);
        }
    }
};

void norms(const Exec& exec, const Where& at, const Elapsed& elapsed, Index n,
           Span<const float> sums, Span<float> out) {
    kernels::for_each(
        exec, "scape::optim::catch_up_norms", n, KOKKOS_LAMBDA(Index j) {
            const auto tau = static_cast<float>(elapsed(at.in_shard(j)));
            out(j) = catch_up_norm(sums(at.in_sums(j)), tau);
        });
}

// One pass over the mask: reads s, moments, visit, w; writes moments, visit, w, what travels back,
// and a zero where s was.
void update_mask(const Exec& exec, const ElementNumbers& numbers, const Where& at,
                 const Elapsed& elapsed, const PowerTable& powers, Index n, Span<float> sums,
                 const Moments& moments, Span<std::uint32_t> visit, Span<float> master,
                 Span<float> back) {
    const bool clear = !at.compact;
    const bool sent = back.extent(0) > 0;
    kernels::for_each(
        exec, "scape::optim::catch_up", n, KOKKOS_LAMBDA(Index j) {
            // What is scattered over memory is asked for in time.
            const Index soon = j + kernels::fetch_ahead < n ? j + kernels::fetch_ahead : j;
            kernels::prefetch_to_write(&visit(at.in_shard(soon)));
            moments.prefetch(at.in_shard(soon));
            kernels::prefetch_to_write(&master(at.in_piece(soon)));
            kernels::prefetch_to_write(&sums(at.in_sums(soon)));

            const Index e = at.in_shard(j);
            const Index i = at.in_piece(j);
            float w = master(i);
            moments.step(numbers, powers, elapsed(e), e, sums(at.in_sums(j)), w);
            visit(e) = elapsed.now;
            master(i) = w;
            if (sent) back(j) = w;
            if (clear) sums(at.in_bucket(j)) = 0.f;
        });
}

// The same where everything travels: every element is visited, which `Elapsed::dense` will say.
void update_all(const Exec& exec, const ElementNumbers& numbers, const Where& at,
                const Elapsed& elapsed, const PowerTable& powers, Index n, Span<const float> sums,
                const Moments& moments, Span<float> master) {
    kernels::for_each(
        exec, "scape::optim::catch_up_all", n, KOKKOS_LAMBDA(Index j) {
            const Index e = at.shard + j;
            float w = master(j);
            moments.step(numbers, powers, elapsed(e), e, sums(j), w);
            master(j) = w;
        });
}

// ... and travelled last time too: AdamS, or AdamW.
void update_dense(const Exec& exec, const ElementNumbers& numbers, const Where& at, Index n,
                  Span<const float> sums, const Moments& moments, Span<float> master) {
    kernels::for_each(
        exec, "scape::optim::scape_dense", n, KOKKOS_LAMBDA(Index j) {
            float w = master(j);
            moments.dense_step(numbers, at.shard + j, sums(j), w);
            master(j) = w;
        });
}

void scores(const Exec& exec, const Elapsed& elapsed, Span<const float> shares, Index shard,
            Span<const float> a, Span<const float> m, Span<float> score) {
    kernels::for_each(
        exec, "scape::optim::catch_up_score", static_cast<Index>(a.extent(0)),
        KOKKOS_LAMBDA(Index j) {
            const std::uint32_t away = elapsed(shard + j);
            const std::uint32_t tau = away < longest_scored ? away : longest_scored;
            score(j) = catch_up_score(shares(tau), static_cast<float>(tau), a(j), m(shard + j));
        });
}

class CatchUp : public ScapeOwner {
   public:
    CatchUp(const config::RunConfig& config, const FlatLayout& layout, const Sharding& sharding,
            int rank, Masks& masks)
        : ScapeOwner(config, layout, sharding, rank, masks),
          m_("scape::optim::m", static_cast<std::size_t>(sharding.shard_extent())),
          visit_("scape::optim::visit", static_cast<std::size_t>(sharding.shard_extent())),
          powers_(make_powers(config.optimizer.beta1, power_count(config))),
          b2_powers_(make_b2_powers(config.optimizer.beta2, power_count(config))),
          shares_(make_shares(config.optimizer.beta1)) {
        if (config.scape.second_moment == config::SecondMoment::stored)
            v_ = Vec<float>("scape::optim::v", m_.extent(0));
    }

    void arrived(const Exec& exec, const Arrived& a) override {
        if (a.all && dense_ == done_) {
            squares_.add(exec, a.bucket, a.sums);
            return;
        }
        const auto out = slice(scratch_, 0, a.count());
        norms(exec, where(a), elapsed(), a.count(), a.sums, out);
        squares_.add(exec, a.bucket, out);
    }

    void update(const Exec& exec, const StepNumbers& numbers, const Arrived& a,
                const Weights& weights) override {
        const ElementNumbers n = decay(exec, numbers, a, weights);
        const Where at = where(a);
        if (!a.all) {
            update_mask(exec, n, at, elapsed(), table(), a.count(), a.sums, moments(), visit_,
                        weights.master, weights.back);
        } else if (dense_ == done_) {
            update_dense(exec, n, at, a.count(), a.sums, moments(), weights.master);
        } else {
            update_all(exec, n, at, elapsed(), table(), a.count(), a.sums, moments(),
                       weights.master);
        }
    }

    void end_step(const Exec&) override {
        ++done_;
        if (masks_.all()) dense_ = done_;
    }

    std::vector<State> state() override {
        std::vector<State> all{{"m", m_}, {"visit", visit_}};
        if (v_.extent(0) > 0) all.push_back({"v", v_});
        return all;
    }
    Index state_bytes() const override {
        return (m_.span() + v_.span()) * sizeof(float) + visit_.span() * sizeof(std::uint32_t) +
               scratch_.span() * sizeof(float);
    }
    std::map<std::string, double> numbers() const override {
        return {{"scape_steps", done_}, {"scape_dense_step", dense_}};
    }
    void set_numbers(const std::map<std::string, double>& numbers) override {
        done_ = static_cast<std::uint32_t>(numbers.at("scape_steps"));
        dense_ = static_cast<std::uint32_t>(numbers.at("scape_dense_step"));
    }

   protected:
    void score(const Exec& exec, int bucket, Span<const float> a, Span<float> score) override {
        scores(exec, elapsed(), shares_, sharding_.shard_piece(bucket).begin, a, m_, score);
    }

   private:
    // In the step under way; once it has ended, in the next.
    Elapsed elapsed() const { return {visit_.data(), done_ + 1, dense_}; }
    PowerTable table() const {
        return {powers_.data(), b2_powers_.data(),
                static_cast<std::uint32_t>(powers_.extent(0) - 1)};
    }
    Moments moments() const { return {m_.data(), v_.extent(0) > 0 ? v_.data() : nullptr}; }
    static std::size_t power_count(const config::RunConfig& config) {
        return powers_that_count(config.optimizer.beta1, config.optimizer.beta2);
    }

    Vec<float> m_;              // (shard)
    Vec<std::uint32_t> visit_;  // (shard) the step at which the element was last in the mask
    Vec<float> v_;              // (shard) only if stored
    Vec<Powers> powers_;
    Vec<float> b2_powers_;
    Vec<float> shares_;
    std::uint32_t done_ = 0;   // steps that counted
    std::uint32_t dense_ = 0;  // the last of them at which everything travelled
};

}  // namespace

std::unique_ptr<Scape> make_catch_up(const config::RunConfig& config, const FlatLayout& layout,
                                     const Sharding& sharding, int rank, Masks& masks) {
    return std::make_unique<CatchUp>(config, layout, sharding, rank, masks);
}

}  // namespace scape::optim
