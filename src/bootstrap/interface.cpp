// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/interface.hpp"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "base/environment.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

bool is_loopback(const sockaddr &address) {
  if (address.sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in &>(address).sin_addr.s_addr) >> 24 == 127;
  const auto &ipv6 = reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr;
  return IN6_IS_ADDR_V4MAPPED(&ipv6) ? ipv6.s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(&ipv6) != 0;
}

// In numbers; empty: another family's. Addresses of one link only are told apart by an interface's number, which is
// another one on another node.
std::string text_of(const sockaddr &address) {
  if (address.sa_family == AF_INET6 &&
      IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr))
    return "";
  if (address.sa_family != AF_INET && address.sa_family != AF_INET6) return "";
  const socklen_t bytes = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST];
  return getnameinfo(&address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

}  // namespace

mxs_status interface_address(const std::string &name, std::string *address) {
  ifaddrs *list = nullptr;
  if (getifaddrs(&list) != 0) return set_error(MXS_SYSTEM, "getifaddrs: %s", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> entries(list, &freeifaddrs);
  std::set<std::string> names;
  std::string found[2];
  for (const ifaddrs *entry = list; entry; entry = entry->ifa_next) {
    names.insert(entry->ifa_name);
    if (name != entry->ifa_name || !entry->ifa_addr) continue;
    std::string &place = found[entry->ifa_addr->sa_family == AF_INET ? 0 : 1];
    if (place.empty()) place = text_of(*entry->ifa_addr);
  }
  *address = found[0].empty() ? found[1] : found[0];
  if (!address->empty()) return MXS_OK;
  if (names.count(name))
    return set_error(MXS_ENVIRONMENT, "MXS_INTERFACE is \"%.64s\", which has no address that other nodes could use",
                     name.c_str());
  std::string all;
  for (const std::string &each : names) all.append(all.empty() ? "" : ", ").append(each);
  return set_error(MXS_ENVIRONMENT, "MXS_INTERFACE is \"%.64s\", but this machine has no such interface; it has %s",
                   name.c_str(), all.c_str());
}

mxs_status read_interface(std::string *address) {
  address->clear();
  const std::optional<std::string> name = environment_text("MXS_INTERFACE");
  return name ? interface_address(*name, address) : MXS_OK;
}

namespace {

// One of the addresses that this machine has.
struct OwnAddress {
  std::string interface, text;
  bool is_loopback = false;
};

std::vector<OwnAddress> own_addresses() {
  std::vector<OwnAddress> found;
  ifaddrs *list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> entries(list, &freeifaddrs);
  for (const ifaddrs *entry = list; entry; entry = entry->ifa_next) {
    const std::string text = entry->ifa_addr ? text_of(*entry->ifa_addr) : "";
    if (!text.empty()) found.push_back({entry->ifa_name, text, is_loopback(*entry->ifa_addr)});
  }
  return found;
}

}  // namespace

mxs_status check_interface_is_found(const std::string &name, const std::string &address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo *list = nullptr;
  if (getaddrinfo(address.c_str(), nullptr, &hints, &list) != 0) return MXS_OK;  // found by others, maybe
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> entries(list, &freeaddrinfo);
  const std::vector<OwnAddress> own = own_addresses();
  const OwnAddress *other = nullptr;
  for (const addrinfo *entry = list; entry; entry = entry->ai_next) {
    const std::string text = text_of(*entry->ai_addr);
    const auto found =
        std::find_if(own.begin(), own.end(), [&](const OwnAddress &each) { return each.text == text; });
    if (found == own.end()) continue;
    if (found->interface == name) return MXS_OK;
    // A machine's own name may lead to its loopback on it, and to its network elsewhere.
    if (!found->is_loopback || address == text || address == "localhost") other = &*found;
  }
  if (!other) return MXS_OK;
  return set_error(MXS_ENVIRONMENT, "MXS_INTERFACE is \"%.64s\", but other ranks look for rank 0 at \"%.200s\", which "
                   "is %s (%s) of this machine; set MASTER_ADDR to an address of %.64s", name.c_str(), address.c_str(),
                   other->interface.c_str(), other->text.c_str(), name.c_str());
}

bool is_bound_to_loopback(int descriptor) {
  sockaddr_storage own{};
  socklen_t bytes = sizeof own;
  if (getsockname(descriptor, reinterpret_cast<sockaddr *>(&own), &bytes) != 0) return false;
  return is_loopback(reinterpret_cast<const sockaddr &>(own));
}

}  // namespace mxs
