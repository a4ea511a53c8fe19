// What codes in blocks promise, whatever their definitions are.
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "value_cases.hpp"

#include <limits>

using namespace scape;
using namespace scape::test;
using kernels::Levels;
using kernels::Rest;
using kernels::ValueCode;

TEST_CASE("linear codes are off by half a scale at most") {
    for (const ValueCode& code : all_codes()) {
        if (code.levels != Levels::linear) continue;
        const Index n = 5003;
        const Table t = table_of(code, {n}, 0, 0);
        const auto a = values_of_all_sizes(n, 8, false);
        const auto device = to_device(a);
        const auto message = guarded(t);
        kernels::pack(Exec(), code, DeviceTable(t, {}).selected, device, Rest::kept, message);
        const auto bytes = to_host(message);
        const auto left = to_host(device);
        Index wrong = 0;
        for (Index i = 0; i < n; ++i) {
            const double scale = decoded_scale(bytes, 2 * (i / code.block));
            wrong += !(std::fabs(left[i]) <= scale * (0.5 + 1e-6));
        }
        INFO(name_of(code));
        CHECK(wrong == 0);
    }
}

TEST_CASE("what was sent and what stays add up to what there was") {
    for (const ValueCode& code : all_codes()) {
        const Index n = 5003;
        const Table t = table_of(code, {n}, 0, 0);
        const DeviceTable on_device(t, {});
        const auto a = values_of_all_sizes(n, 9, false);
        const auto left = to_device(a), sent = filled(n, 0.f);
        const auto message = guarded(t);
        kernels::pack(Exec(), code, on_device.selected, left, Rest::kept, message);
        kernels::add_values(Exec(), code, on_device.selected, message, 1.f, sent);
        const auto here = to_host(left), there = to_host(sent);
        Index wrong = 0;
        for (Index i = 0; i < n; ++i) {
            const double sum = static_cast<double>(here[i]) + there[i];
            wrong += !(std::fabs(sum - a[i]) <= 6e-8 * (std::fabs(here[i]) + std::fabs(there[i])));
        }
        INFO(name_of(code));
        CHECK(wrong == 0);
    }
}

TEST_CASE("linear codes of decoded values are the same codes") {
    for (const ValueCode& code : all_codes()) {
        if (code.levels != Levels::linear) continue;
        const Index n = 20011;
        const Table t = table_of(code, {n}, 0, 0);
        const DeviceTable on_device(t, {});
        const auto values = filled(n, 0.f);
        const auto once = guarded(t), twice = guarded(t);
        kernels::pack(Exec(), code, on_device.selected, to_device(values_of_all_sizes(n, 12, true)),
                      Rest::untouched, once);
        kernels::add_values(Exec(), code, on_device.selected, once, 1.f, values);
        kernels::pack(Exec(), code, on_device.selected, values, Rest::untouched, twice);
        // Blocks with NaN decode to NaN: their scale is the same, their codes are not.
        auto first = to_host(once), second = to_host(twice);
        const Index scales = (2 * kernels::blocks_of(code, n) + 3) / 4 * 4;
        Index nan_blocks = 0;
        for (Index b = 0; b < kernels::blocks_of(code, n); ++b) {
            if (!std::isnan(decoded_scale(first, 2 * b))) continue;
            ++nan_blocks;
            const Index begin = scales + b * code.block * code.bits / 8;
            const Index end = std::min<Index>(begin + code.block * code.bits / 8, t.bytes);
            std::fill(first.begin() + begin, first.begin() + end, 0);
            std::fill(second.begin() + begin, second.begin() + end, 0);
        }
        INFO(name_of(code));
        check_same_bits("codes", second, first);
        CHECK(nan_blocks < kernels::blocks_of(code, n));
    }
}

TEST_CASE("blocks of zeros and subnormals decode to zeros, blocks with NaN to NaN") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    for (const ValueCode& code : all_codes()) {
        for (const float odd : {0.f, -0.f, 1e-40f, -1e-45f, nan, -nan, infinity, -infinity}) {
            const Index n = code.block;
            const Table t = table_of(code, {3 * n}, 0, 0);
            std::vector<float> a(static_cast<std::size_t>(3 * n), 1.f), wanted(a);
            for (Index i = n; i < 2 * n; ++i) a[i] = std::isfinite(odd) ? odd : 1.f;
            a[2 * n - 3] = odd;
            const DeviceTable on_device(t, {});
            const auto decoded = filled(3 * n, 0.f);
            const auto message = guarded(t);
            kernels::pack(Exec(), code, on_device.selected, to_device(a), Rest::untouched, message);
            kernels::add_values(Exec(), code, on_device.selected, message, 1.f, decoded);
            const auto got = to_host(decoded);
            INFO(name_of(code) << ", " << odd);
            Index wrong = 0;
            for (Index i = 0; i < n; ++i)
                wrong += std::isfinite(odd) ? got[n + i] != 0 : !std::isnan(got[n + i]);
            CHECK(wrong == 0);
            CHECK(got[0] > 0);  // the neighbours are as they were
            CHECK(std::isfinite(got[n - 1]));
            CHECK(got[2 * n] == got[0]);
        }
    }
}
