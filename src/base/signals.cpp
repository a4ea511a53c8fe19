#include <scape/base/signals.hpp>

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <thread>

namespace scape {

namespace {

constexpr std::array signals{SIGINT, SIGTERM, SIGUSR1};
std::atomic<int> received{0};

// Async-signal-safe: it remembers, or leaves at once when asked twice.
extern "C" void note_signal(int number) {
    if (received.exchange(number) != 0) _exit(128 + number);
}

}  // namespace

void watch_stop_signals() {
    received = 0;
    static bool watching = false;
    if (watching) return;
    watching = true;

    sigset_t set;
    sigemptyset(&set);
    for (const int s : signals) sigaddset(&set, s);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    for (const int s : signals) {
        struct sigaction action = {};
        action.sa_handler = note_signal;
        action.sa_flags = SA_RESTART;
        sigaction(s, &action, nullptr);
    }
    std::thread([set] {
        pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
        for (;;) pause();
    }).detach();
}

int stop_signal() {
    return received.load();
}

}  // namespace scape
