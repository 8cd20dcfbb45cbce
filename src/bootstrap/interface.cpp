// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/interface.hpp"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "base/environment.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

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

}  // namespace mxs
