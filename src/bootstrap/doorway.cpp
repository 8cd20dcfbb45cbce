// SPDX-License-Identifier: Apache-2.0
// The host's door (greeting.hpp): what strangers may take of it.
//
//   connections  256 that haven't been greeted; for one more the oldest that has said no whole hello is closed, else
//                the oldest. A rank's hello is on its way when the connection is, and its proof a round trip later, so
//                what waits longest is no rank of ours; and a rank that is closed by mistake comes again
//   bytes        72 of a hello, 56 of a proof; a stranger that sends anything else is closed at the first byte that
//                doesn't fit
//   seconds      5 from the first packet to the proof
//   descriptors  where they end, the oldest is closed and the listener rests for 50 ms, instead of a busy loop
//   log          8 lines, and one that counts the rest
#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "bootstrap/greeting.hpp"

namespace mxs {

namespace {

constexpr size_t strangers_max = 256;
constexpr int accepted_at_once_max = 512;  // then those who are in are heard
constexpr uint64_t rest_ns = 50'000'000u;
constexpr uint64_t lines_max = 8;

}  // namespace

void Doorway::close() {
  listener_.reset();
  strangers_.clear();
  if (turned_away_count_ > lines_max)
    log_line(MXS_LOG_WARNING, "bootstrap: refused %llu connections in all",
             static_cast<unsigned long long>(turned_away_count_));
}

void Doorway::add_to(std::vector<pollfd> *entries) const {
  if (listener_ && now_ns() >= rests_until_ns_) entries->push_back({listener_->get(), POLLIN, 0});
  for (const Stranger &stranger : strangers_) entries->push_back({stranger.descriptor(), POLLIN, 0});
}

void Doorway::refuse(Stranger &stranger, mxs_status status) {
  latest_reason_ = last_error_text();
  stranger.tell(status, latest_reason_);
  if (++turned_away_count_ <= lines_max)
    log_line(MXS_LOG_WARNING, "bootstrap: refused a connection: %s", latest_reason_.c_str());
}

Stranger::State Doorway::hear(Stranger &stranger, const Admit &admit, mxs_status *status) {
  mxs_status reason = MXS_OK;
  const Stranger::State state = stranger.hear(occasion_, now_ns(), &reason);
  if (state == Stranger::State::refused) refuse(stranger, reason);
  if (state == Stranger::State::proven) *status = admit(stranger);
  if (state == Stranger::State::left_word)
    *status = set_error(MXS_PEER_FAILED, "the others went on without this rank, which did not come to mxs_comm_shrink "
                        "in time");
  return state;
}

bool Doorway::make_room() {
  if (strangers_.empty()) return false;
  auto oldest = std::find_if(strangers_.begin(), strangers_.end(),
                             [](const Stranger &stranger) { return !stranger.has_greeted(); });
  strangers_.erase(oldest == strangers_.end() ? strangers_.begin() : oldest);
  return true;
}

mxs_status Doorway::accept_some(const Admit &admit) {
  for (int count = 0; count < accepted_at_once_max; ++count) {
    bool out_of_files = false;
    Socket socket = accept_from(*listener_, &out_of_files);
    if (!socket && out_of_files && make_room()) continue;
    if (!socket && out_of_files) {
      rests_until_ns_ = now_ns() + rest_ns;
      if (!was_short_of_files_)
        log_line(MXS_LOG_WARNING, "bootstrap: no descriptor is left to let ranks in at %s; raise the limit on open "
                 "files (ulimit -n)", occasion_.place.c_str());
      was_short_of_files_ = true;
    }
    if (!socket) return MXS_OK;
    // Heard at once, before others push it out: what a rank says is there by now, mostly.
    Stranger stranger(std::move(socket), now_ns());
    mxs_status status = MXS_OK;
    const Stranger::State state = hear(stranger, admit, &status);
    if (status != MXS_OK) return status;
    if (state != Stranger::State::more) continue;
    if (strangers_.size() >= strangers_max) make_room();
    strangers_.push_back(std::move(stranger));
  }
  return MXS_OK;
}

mxs_status Doorway::serve(const Admit &admit) {
  mxs_status status = MXS_OK;
  std::erase_if(strangers_, [&](Stranger &stranger) {
    return status == MXS_OK && hear(stranger, admit, &status) != Stranger::State::more;
  });
  return status == MXS_OK && listener_ && now_ns() >= rests_until_ns_ ? accept_some(admit) : status;
}

std::string Doorway::turned_away() const {
  std::string text;
  if (turned_away_count_ == 1) text = "; a connection was refused: " + latest_reason_;
  if (turned_away_count_ > 1)
    text = "; " + std::to_string(turned_away_count_) + " connections were refused, the latest: " + latest_reason_;
  if (was_short_of_files_) text += "; descriptors ran out meanwhile, raise the limit on open files (ulimit -n)";
  return text;
}

}  // namespace mxs
