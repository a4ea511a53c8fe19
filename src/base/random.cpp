#include <scape/base/random.hpp>

#include <cmath>

namespace scape {
namespace {

// Horner's rule, highest coefficient last.
template <std::size_t N>
double polynomial(const double (&c)[N], double x) {
    double sum = c[N - 1];
    for (std::size_t i = N - 1; i-- > 0;) sum = std::fma(sum, x, c[i]);
    return sum;
}

// log(x), x > 0 and normal, from operations that round the same everywhere:
// x = m 2^e, sqrt(1/2) <= m < sqrt(2); log m = 2 atanh(s), s = (m - 1) / (m + 1).
double portable_log(double x) {
    constexpr double ln2_high = 0x1.62e42fefa39efp-1, ln2_low = 0x1.abc9e3b39803fp-56;
    constexpr double series[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                                 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
    int exponent = 0;
    double m = std::frexp(x, &exponent);
    if (m < 0.70710678118654752) {
        m *= 2;
        --exponent;
    }
    const double s = (m - 1) / (m + 1);
    const double log_m = s * polynomial(series, s * s);
    return std::fma(exponent, ln2_high, std::fma(exponent, ln2_low, log_m));
}

// Numerators and denominators of AS 241, PPND16.
constexpr double a[] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                        1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                        3.3430575583588128105e4, 2.5090809287301226727e3};
constexpr double b[] = {1.0,
                        4.2313330701600911252e1,
                        6.8718700749205790830e2,
                        5.3941960214247511077e3,
                        2.1213794301586595867e4,
                        3.9307895800092710610e4,
                        2.8729085735721942674e4,
                        5.2264952788528545610e3};
constexpr double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                        5.76949722146069140550e0,  3.64784832476320460504e0,
                        1.27045825245236838258e0,  2.41780725177450611770e-1,
                        2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double d[] = {1.0,
                        2.05319162663775882187e0,
                        1.67638483018380384940e0,
                        6.89767334985100004550e-1,
                        1.48103976427480074590e-1,
                        1.51986665636164571966e-2,
                        5.47593808499534494600e-4,
                        1.05075007164441684324e-9};
constexpr double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                        1.78482653991729133580e0,  2.96560571828504891230e-1,
                        2.65321895265761230930e-2, 1.24266094738807843860e-3,
                        2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double f[] = {1.0,
                        5.99832206555887937690e-1,
                        1.36929880922735805310e-1,
                        1.48753612908506148525e-2,
                        7.86869131145613259100e-4,
                        1.84631831751005468180e-5,
                        1.42151175831644588870e-7,
                        2.04426310338993978564e-15};

}  // namespace

std::uint64_t uniform_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
    const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
    const auto block = philox4x32({low(counter), high(counter), low(stream), high(stream)},
                                  {low(seed), high(seed)});
    return block[0] | std::uint64_t{block[1]} << 32;
}

double inverse_normal_cdf(double p) {
    const double q = p - 0.5;
    if (std::abs(q) <= 0.425) {
        const double r = std::fma(-q, q, 0.180625);
        return q * polynomial(a, r) / polynomial(b, r);
    }
    const double r = std::sqrt(-portable_log(q < 0 ? p : 1 - p));
    const double x = r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6)
                            : polynomial(e, r - 5) / polynomial(f, r - 5);
    return q < 0 ? -x : x;
}

double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t element) {
    // The middle of one of 2^52 equal cells: never 0 or 1, and exact in double.
    const std::uint64_t cell = uniform_bits(seed, stream, element) >> 12;
    return inverse_normal_cdf((static_cast<double>(cell) + 0.5) * 0x1p-52);
}

void fill_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, double stddev,
                 HostSpan<float> out) {
    float* const values = out.data();
    const Index n = static_cast<Index>(out.extent(0));
    for (Index i = 0; i < n; ++i) {
        values[i] = static_cast<float>(stddev * normal(seed, stream, first + i));
    }
}

}  // namespace scape
