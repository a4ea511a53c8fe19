// A Kokkos tool as a user would load one (KOKKOS_TOOLS_LIBS): prints each region and kernel once.
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>

namespace {

std::set<std::string> seen;

void note(const char* kind, const char* name) {
    if (seen.insert(std::string(kind) + name).second) std::printf("tool: %s %s\n", kind, name);
}

}  // namespace

extern "C" {
void kokkosp_init_library(const int, const std::uint64_t, const std::uint32_t, void*) {
    std::puts("tool: loaded");
}
void kokkosp_finalize_library() {
    std::puts("tool: finished");
}
void kokkosp_push_profile_region(const char* name) {
    note("region", name);
}
void kokkosp_pop_profile_region() {}
void kokkosp_begin_parallel_for(const char* name, const std::uint32_t, std::uint64_t*) {
    note("kernel", name);
}
void kokkosp_end_parallel_for(const std::uint64_t) {}
}
