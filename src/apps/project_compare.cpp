#include "project.hpp"

#include <scape/config/deck.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace scape::apps {

namespace {

using nlohmann::ordered_json;

struct Method {
    std::string name;
    std::vector<std::string> settings;  // over the deck, without its optimizer and exchange
};

/// From what loses nothing to what loses most, by the measured rows of tools/study_convergence.
/// Densities are fixed: what a step takes once the density is there.
const std::vector<Method>& methods() {
    const auto scape = [](const std::string& density, bool four_bits) {
        Method m{fmt::format("SCAPE {}{}", density, four_bits ? ", 4/4 bits" : ""),
                 {"optimizer.kind=scape", "sparsity.density=" + density,
                  "sparsity.density_start=" + density}};
        if (four_bits) {
            m.settings.emplace_back("exchange.value_bits=4");
            m.settings.emplace_back("exchange.delta_bits=4");
        }
        return m;
    };
    static const std::vector<Method> all{
        {"AdamW, dense", {"optimizer.kind=adamw"}},
        {"AdamS, dense", {"optimizer.kind=adams"}},
        {"LoCo, 4 bits", {"optimizer.kind=adamw", "exchange.value_bits=4", "exchange.error=loco"}},
        {"AdamS, 4/4 bits",
         {"optimizer.kind=adams", "exchange.value_bits=4", "exchange.delta_bits=4"}},
        scape("0.1", false),
        scape("0.1", true),
        scape("0.01", false),
        scape("0.01", true),
    };
    return all;
}

config::RunConfig with_method(config::RunConfig config, const Method& method) {
    config.scape = {};
    config.sparsity = {};
    config.exchange = {};
    config.loco = {};
    config.error_feedback = {};
    return config::parse_run_config(config::resolved_deck(config), "deck", method.settings);
}

/// A method is as good as the fastest if it is at most so much slower.
constexpr double as_good = 1.05;

/// The work of every method on P ranks, and what it takes with any network.
class Contest {
   public:
    Contest(const config::RunConfig& config, int ranks, const config::Machine& machine)
        : machine_(machine) {
        for (const Method& m : methods())
            work_.push_back(train::step_work(with_method(config, m), ranks));
    }
    train::StepPrediction predict(std::size_t method, double bandwidth) const {
        return train::predict_step(work_[method], with_bandwidth(machine_, bandwidth));
    }
    std::vector<double> seconds(double bandwidth) const {
        std::vector<double> all;
        for (std::size_t m = 0; m < work_.size(); ++m) all.push_back(predict(m, bandwidth).seconds);
        return all;
    }
    /// The first method, and so the one that loses least, that is as good as the fastest.
    std::size_t choice(double bandwidth) const {
        const std::vector<double> all = seconds(bandwidth);
        const double fastest = *std::min_element(all.begin(), all.end());
        const auto found =
            std::find_if(all.begin(), all.end(), [&](double s) { return s <= as_good * fastest; });
        return static_cast<std::size_t>(found - all.begin());
    }

   private:
    config::Machine machine_;
    std::vector<train::StepWork> work_;
};

/// 0.01 to 1000 GB/s, 20 to a decade, rising.
std::vector<double> grid() {
    constexpr int per_decade = 20;
    std::vector<double> all;
    for (int i = -2 * per_decade; i <= 3 * per_decade; ++i)
        all.push_back(std::pow(10.0, static_cast<double>(i) / per_decade));
    return all;
}

struct Range {
    std::size_t method;
    double above;  // GB/s; 0: however slow
};

/// Which method to choose, walking down from the fastest network; between two points of the grid
/// the border is found by bisection.
std::vector<Range> choices(const Contest& contest) {
    const std::vector<double> at = grid();
    std::vector<Range> ranges{{contest.choice(at.back()), 0}};
    for (std::size_t i = at.size() - 1; i-- > 0;) {
        const std::size_t next = contest.choice(at[i]);
        if (next == ranges.back().method) continue;
        double low = at[i];
        double high = at[i + 1];
        for (int halvings = 0; halvings < 12; ++halvings) {
            const double middle = std::sqrt(low * high);
            (contest.choice(middle) == ranges.back().method ? high : low) = middle;
        }
        ranges.back().above = high;
        ranges.push_back({next, 0});
    }
    return ranges;
}

std::string sentence(const std::vector<Range>& ranges) {
    std::string text;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        const std::string& name = methods()[ranges[i].method].name;
        if (ranges[i].above > 0) {
            text += fmt::format("{}{} above {:.3g} GB/s", i > 0 ? "; " : "", name, ranges[i].above);
        } else {
            text += ranges.size() == 1 ? name + " at any bandwidth" : "; below that " + name;
        }
    }
    return text;
}

using Contests = std::map<int, Contest>;

void print_table(const Contests& contests, double bandwidth, double capacity_gb) {
    fmt::print("\nstep, ms, with {:g} GB/s\n{:<22}", bandwidth, "GPUs");
    for (const auto& [ranks, contest] : contests) fmt::print("{:>11}", ranks);
    fmt::print("\n");
    bool too_large = false;
    for (std::size_t m = 0; m < methods().size(); ++m) {
        fmt::print("{:<22}", methods()[m].name);
        for (const auto& [ranks, contest] : contests) {
            const train::StepPrediction p = contest.predict(m, bandwidth);
            const bool fits =
                capacity_gb <= 0 || static_cast<double>(p.memory.total()) <= 1e9 * capacity_gb;
            too_large = too_large || !fits;
            fmt::print("{:>10.1f}{}", 1e3 * p.seconds, fits ? ' ' : '*');
        }
        fmt::print("\n");
    }
    if (too_large) fmt::print("* does not fit into {:g} GB\n", capacity_gb);
}

}  // namespace

ordered_json compare_methods(const config::RunConfig& config, const std::vector<int>& gpus,
                             const config::Machine& machine,
                             const std::vector<double>& bandwidths) {
    Contests contests;
    for (const int ranks : gpus) contests.try_emplace(ranks, config, ranks, machine);
    for (const double b : bandwidths) print_table(contests, b, machine.capacity_gb);

    ordered_json out;
    for (const Method& m : methods())
        out["methods"].push_back({{"name", m.name}, {"settings", m.settings}});
    out["gb_per_s"] = grid();
    fmt::print(
        "\nwhich one to use: of those that are at most {:.0f} % slower than the fastest the one "
        "that loses least\n",
        100 * (as_good - 1));
    for (const auto& [ranks, contest] : contests) {
        const std::vector<Range> ranges = choices(contest);
        fmt::print("{:>6} GPUs: {}\n", ranks, sentence(ranges));
        ordered_json of_ranks{{"gpus", ranks}, {"compute_seconds", contest.predict(0, 1).compute}};
        for (const Range& r : ranges)
            of_ranks["choices"].push_back(
                {{"method", methods()[r.method].name}, {"above_gb_per_s", r.above}});
        // [method][bandwidth]
        for (std::size_t m = 0; m < methods().size(); ++m) {
            std::vector<double> seconds;
            for (const double b : grid()) seconds.push_back(contest.predict(m, b).seconds);
            of_ranks["step_seconds"].push_back(seconds);
        }
        out["map"].push_back(of_ranks);
    }
    return out;
}

}  // namespace scape::apps
