// The compiled parts of Boost.Asio and Boost.Beast, once for the whole binary (see room.cmake).
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
