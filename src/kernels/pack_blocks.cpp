// Packing codes in blocks: a block's scale from its values, then their codes, and what stays. The
// values are read again for each of these, from a cache.
#include "coded_blocks.hpp"
#include "pack_detail.hpp"
#include "places.hpp"

namespace scape::kernels {

namespace detail {

namespace {

/// Values of a block that a host keeps on its stack; of a larger block they are found anew.
inline constexpr Index kept_values = 1024;

template <class Code, class Source>
struct PackBlocks {
    ValueCode code;
    const CodedSegment* segments;
    Source source;
    unsigned char* message;

    KOKKOS_INLINE_FUNCTION void operator()(const ShortRow& row, const Block& b) const {
        const Source from = source;
        from.fetch(b.at + b.values, b.at + 2 * b.values);
        const auto found = [&](Index j) { return from.value(b.at + j); };
        if constexpr (Source::scattered && exec_is_host) {
            if (b.values <= kept_values) {
                alignas(64) float kept[kept_values];
                for (Index j = 0; j < b.values; ++j) kept[j] = found(j);
                return send(row, b, [&](Index j) { return kept[j]; });
            }
        }
        send(row, b, found);
    }
    template <class X>
    KOKKOS_FORCEINLINE_FUNCTION void send(const ShortRow& row, const Block& b, const X& x) const {
        const Source from = source;
        const BlockBytes to(segments[b.segment], b, code.block, Code::bits);
        const auto scale = Code::scale_of(row, b.values, x);
        row.once([&] { store_scale(message + to.scale, scale, b); });
        const Code levels(scale);
        store_codes<Code::bits>(row, b.values, message + to.codes, message + to.end, [&](Index j) {
            const Coded coded = levels.encode(x(j));
            from.leave(b.at + j, x(j) - coded.decoded);
            return coded.code;
        });
    }
};

template <class Source>
void pack_from(const Exec& exec, const std::string& label, const ValueCode& code,
               const Selected& selected, const Source& source, Span<unsigned char> message) {
    with_levels(code, [&]<class Code>() {
        for_each_block(
            exec, label, code, selected,
            PackBlocks<Code, Source>{code, selected.segments.data(), source, message.data()});
    });
}

}  // namespace

void pack_blocks(const Exec& exec, const ValueCode& code, const Selected& selected, Span<float> a,
                 Rest rest, Span<unsigned char> message) {
    with_place(selected, 0, [&](auto place) {
        pack_from(exec, "scape::kernels::pack", code, selected,
                  Elements<decltype(place)>{a.data(), place, rest == Rest::kept}, message);
    });
}

void pack_blocks_of_differences(const Exec& exec, const ValueCode& code, const Selected& selected,
                                Span<const float> master, Span<const float> replica, Index origin,
                                Span<unsigned char> message) {
    with_place(selected, origin, [&](auto place) {
        pack_from(exec, "scape::kernels::pack_differences", code, selected,
                  Differences<decltype(place)>{master.data(), replica.data(), place}, message);
    });
}

namespace {

/// e of a block before the message, 0 where there was none.
struct OldError {
    const std::int8_t* codes;
    Linear<8> levels;
    KOKKOS_FORCEINLINE_FUNCTION float operator()(Index j) const {
        return codes == nullptr ? 0.f : levels.decode(std::int32_t{codes[j]});
    }
};

template <class Code>
struct PackLoco {
    ValueCode code;
    const CodedSegment* segments;
    const float* g;
    const CodedSegment* error_segments;
    const unsigned char* before;
    unsigned char* after;
    float beta;
    unsigned char* message;

    KOKKOS_INLINE_FUNCTION void operator()(const ShortRow& row, const Block& b) const {
        const BlockBytes to(segments[b.segment], b, code.block, Code::bits);
        const BlockBytes in_error(error_segments[b.segment], b, code.block, 8);
        const OldError e =
            before == nullptr
                ? OldError{nullptr, Linear<8>(0)}
                : OldError{reinterpret_cast<const std::int8_t*>(before + in_error.codes),
                           Linear<8>(load_scale(before + in_error.scale))};
        const float* const gradient = g + b.at;
        const auto h = [&](Index j) { return gradient[j] + e(j); };
        const auto scale = Code::scale_of(row, b.values, h);
        row.once([&] { store_scale(message + to.scale, scale, b); });
        const Code levels(scale);
        const float old_part = beta, new_part = 1.f - beta;
        const auto left = [&](Index j, const Coded& coded) {
            return old_part * e(j) + new_part * (h(j) - coded.decoded);
        };
        unsigned char *const codes = message + to.codes, *const end = message + to.end;
        if constexpr (exec_is_host) {
            if (b.values <= kept_values) {
                alignas(64) float kept[kept_values];
                store_codes<Code::bits>(row, b.values, codes, end, [&](Index j) {
                    const Coded coded = levels.encode(h(j));
                    kept[j] = left(j, coded);
                    return coded.code;
                });
                return store_error(row, b, in_error, [&](Index j) { return kept[j]; });
            }
        }
        store_codes<Code::bits>(row, b.values, codes, end,
                                [&](Index j) { return levels.encode(h(j)).code; });
        store_error(row, b, in_error, [&](Index j) { return left(j, levels.encode(h(j))); });
    }
    template <class X>
    KOKKOS_FORCEINLINE_FUNCTION void store_error(const ShortRow& row, const Block& b,
                                                 const BlockBytes& to, const X& left) const {
        const auto scale = Linear<8>::scale_of(row, b.values, left);
        row.once([&] { store_scale(after + to.scale, scale, b); });
        const Linear<8> levels(scale);
        store_codes<8>(row, b.values, after + to.codes, after + to.end,
                       [&](Index j) { return levels.encode(left(j)).code; });
    }
};

}  // namespace

}  // namespace detail

void pack_loco(const Exec& exec, const ValueCode& code, const Selected& selected,
               Span<const float> g, const LocoError& error, Span<unsigned char> message) {
    detail::with_levels(code, [&]<class Code>() {
        detail::for_each_block(
            exec, "scape::kernels::pack_loco", code, selected,
            detail::PackLoco<Code>{code, selected.segments.data(), g.data(), error.segments.data(),
                                   error.before.extent(0) == 0 ? nullptr : error.before.data(),
                                   error.after.data(), error.beta, message.data()});
    });
}

}  // namespace scape::kernels
