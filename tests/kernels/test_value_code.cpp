// Codes in blocks against their definitions, bit for bit, over odd tables of segments.
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "value_cases.hpp"

using namespace scape;
using namespace scape::test;
using kernels::Levels;
using kernels::Rest;
using kernels::ValueCode;

TEST_CASE("a message of codes is what its description says") {
    // Two blocks of 8 and 3 values: scales 1 and 0.5, two bytes each; codes; one byte of padding.
    std::vector<float> a{7, -7, 1, -1, 0, 2.4f, 2.5f, 3.5f, 3.5f, -1, 0.2f};
    const ValueCode code{Levels::linear, 4, 8};
    const Table t = table_of(code, {11}, 0, 0);
    const DeviceTable on_device(t, {});
    const auto device = to_device(a);
    const auto message = guarded(t);
    kernels::pack(Exec(), code, on_device.selected, device, Rest::kept, message);
    check_same_bits("message", to_host(message),
                    std::vector<unsigned char>{0x80, 0x3f, 0x00, 0x3f, 0x97, 0xf1, 0x20, 0x42, 0xe7,
                                               0x00, 0x00, 0x00});
    check_close("rest", to_host(device),
                std::vector<float>{0, 0, 0, 0, 0, 2.4f - 2, 0.5f, -0.5f, 0, 0, 0.2f}, 0, 0);

    a = {-1, 2, -3, 2, 1, -2, 3, -2, 5};
    const ValueCode sign{Levels::sign, 1, 8};
    const Table of_signs = table_of(sign, {9}, 0, 0);
    const auto signs = guarded(of_signs);
    kernels::pack(Exec(), sign, DeviceTable(of_signs, {}).selected, to_device(a), Rest::untouched,
                  signs);
    check_same_bits("signs", to_host(signs),
                    std::vector<unsigned char>{0x00, 0x40, 0xa0, 0x40, 0xa5, 0x00, 0x00, 0x00});

    a = {1, -1, 3, -3};  // root mean square 2.236, in bf16 2.234; times 0.9816: 2.193
    const ValueCode gaussian{Levels::gaussian, 2, 8};
    const Table of_levels = table_of(gaussian, {4}, 0, 0);
    const auto levels = guarded(of_levels);
    kernels::pack(Exec(), gaussian, DeviceTable(of_levels, {}).selected, to_device(a), Rest::kept,
                  levels);
    check_same_bits("levels", to_host(levels),
                    std::vector<unsigned char>{0x0f, 0x40, 0x00, 0x00, 0xd8, 0x00, 0x00, 0x00});
}

TEST_CASE("pack writes the codes of its blocks, and leaves what they lost") {
    for (const ValueCode& code : all_codes()) {
        for_each_table(code, 0, [&](const Table& t, const Array& array) {
            const auto a = values_of_all_sizes(array.size, 3, true);
            const CodedValues wanted = coded(code, t, array.values(t, a, 0));
            const DeviceTable on_device(t, array.positions);
            for (const Rest rest : {Rest::kept, Rest::untouched}) {
                const auto device = to_device(a);
                const auto message = guarded(t);
                kernels::pack(Exec(), code, on_device.selected, device, rest, message);
                std::vector<float> left = a;
                for_each_value(t, [&](Index i) {
                    const Index at = array.of(i, 0);
                    if (at >= 0 && rest == Rest::kept) left[at] = a[at] - wanted.decoded[i];
                });
                check_same_bits("message", to_host(message), wanted.message);
                check_close("rest", to_host(device), left, 0, 0);
            }
        });
    }
}

TEST_CASE("differences are coded like values") {
    const Index origin = 1000;
    for (const ValueCode& code : all_codes()) {
        if (code.block == 8) continue;
        for_each_table(code, origin, [&](const Table& t, const Array& array) {
            const Index shift = array.positions.empty() ? origin : 0;
            Table shifted = t;
            for (auto& s : shifted.segments) s.first += shift;
            const auto master = values_of_all_sizes(array.size, 4, false);
            auto replica = values_of_all_sizes(array.size, 5, false);
            for (std::size_t i = 0; i < replica.size(); i += 2)
                replica[i] = master[i] * (1.f + 1e-3f * replica[i]);
            std::vector<float> difference(master.size());
            for (std::size_t i = 0; i < master.size(); ++i) difference[i] = master[i] - replica[i];
            const CodedValues wanted = coded(code, t, array.values(t, difference, origin));
            const DeviceTable on_device(shifted, array.positions);
            const auto message = guarded(t);
            kernels::pack_differences(Exec(), code, on_device.selected, to_device(master),
                                      to_device(replica), origin, message);
            check_same_bits("message", to_host(message), wanted.message);
        });
    }
}

TEST_CASE("messages of codes are summed in rank order, and put where they belong") {
    const Index origin = 77;
    for (const ValueCode& code : all_codes()) {
        for_each_table(code, origin, [&](const Table& t, const Array& array) {
            const int ranks = 1 + static_cast<int>(t.segments.size()) % 4;
            const float factor = 1.f / 3.f;
            std::vector<std::vector<unsigned char>> messages;
            std::vector<float> sums(static_cast<std::size_t>(t.values));
            for (int p = 0; p < ranks; ++p) {
                const auto x = values_of_all_sizes(t.values, 10 + p, p == 2);
                const CodedValues c = coded(code, t, x);
                messages.push_back(c.message);
                for (Index i = 0; i < t.values; ++i)
                    sums[i] = p == 0 ? c.decoded[i] : sums[i] + c.decoded[i];
            }
            for (int me = 0; me < ranks; ++me) {
                std::vector<unsigned char> others;
                for (int p = 0; p < ranks; ++p)
                    if (p != me)
                        others.insert(others.end(), messages[p].begin(), messages[p].end());
                const auto mine = to_device(messages[me]);
                const auto received = to_device(others);
                std::vector<float> compact(static_cast<std::size_t>(t.values), -7.f);
                std::vector<float> placed(static_cast<std::size_t>(array.size), -7.f);
                for_each_value(t, [&](Index i) {
                    compact[i] = factor * sums[i];
                    if (array.of(i, origin) >= 0) placed[array.of(i, origin)] = factor * sums[i];
                });
                const auto out = filled(t.values, -7.f);
                kernels::sum_values(Exec(), code, DeviceTable(t, array.positions).selected, mine,
                                    received, me, factor, true, out);
                check_close("compact", to_host(out), compact, 0, 0);

                Table shifted = t;
                if (array.positions.empty())
                    for (auto& s : shifted.segments) s.first += origin;
                const auto flat = filled(array.size, -7.f);
                kernels::sum_values(Exec(), code, DeviceTable(shifted, array.positions).selected,
                                    mine, received, me, factor, false, flat, origin);
                check_close("placed", to_host(flat), placed, 0, 0);
            }
        });
    }
}

TEST_CASE("a message of codes is added where it belongs, and nowhere else") {
    const Index origin = 40;
    for (const ValueCode& code : all_codes()) {
        for_each_table(code, origin, [&](const Table& t, const Array& array) {
            const CodedValues c = coded(code, t, values_of_all_sizes(t.values, 21, true));
            const auto before = normal_values(array.size, 22);
            std::vector<float> wanted = before;
            for_each_value(t, [&](Index i) {
                if (array.of(i, origin) >= 0) wanted[array.of(i, origin)] += 0.3f * c.decoded[i];
            });
            Table shifted = t;
            if (array.positions.empty())
                for (auto& s : shifted.segments) s.first += origin;
            const auto out = to_device(before);
            kernels::add_values(Exec(), code, DeviceTable(shifted, array.positions).selected,
                                to_device(c.message), 0.3f, out, origin);
            check_close("added", to_host(out), wanted, 0, 0);
        });
    }
}

TEST_CASE("LoCo codes gradient plus error, and keeps a moving average of what the codes lost") {
    const float beta = 0.8f;
    for (const ValueCode& code : all_codes()) {
        const ValueCode of_error{Levels::linear, 8, code.block};
        for (const auto& lengths : lengths_of_segments) {
            INFO(name_of(code) << ", " << lengths.size() << " segments");
            const Table t = table_of(code, lengths, 3, 8, 5);
            const Table error_table = table_of(of_error, lengths, 3, 12, 5);
            const DeviceTable on_device(t, {}), error_on_device(error_table, {});
            std::vector<float> e(static_cast<std::size_t>(t.values), 0.f);
            Vec<unsigned char> before;
            for (int step = 0; step < 3; ++step) {
                const auto g = values_of_all_sizes(t.values, 30 + step, step == 2);
                std::vector<float> h = g;
                for (Index i = 0; i < t.values; ++i) h[i] = g[i] + e[i];
                const CodedValues sent = coded(code, t, h);
                std::vector<float> left(h.size());
                for (Index i = 0; i < t.values; ++i)
                    left[i] = beta * e[i] + (1.f - beta) * (h[i] - sent.decoded[i]);
                const CodedValues error = coded(of_error, error_table, left);

                const auto gradient = to_device(g);
                const auto message = guarded(t);
                const auto after = guarded(error_table);
                kernels::pack_loco(Exec(), code, on_device.selected, gradient,
                                   {error_on_device.segments, before, after, beta}, message);
                check_same_bits("message", to_host(message), sent.message);
                check_same_bits("error", to_host(after), error.message);
                check_same_bits("gradient", to_host(gradient), g);
                before = after;
                e = error.decoded;
            }
        }
    }
}
