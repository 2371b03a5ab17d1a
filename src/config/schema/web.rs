//! Which keys may the file of TLS and passwords hold? Those of Prometheus' `--web.config.file`, as far as they mean something here.

use super::Fallback::{Derived, Value};
use super::Kind::{Choice, List, Map, Path, Switch, Text};
use super::{Key, key, section};
use crate::config::web::tls::{client_auth_types, curves, suites, versions};

#[rustfmt::skip]
pub(in crate::config) const KEYS: &[Key] = &[
    section("tls_server_config", "With it the port speaks HTTPS and nothing else."),
    key("tls_server_config.cert_file", Path, Derived("required, or `cert`"), "Our certificate, PEM, and those between it and its authority."),
    key("tls_server_config.key_file", Path, Derived("required, or `key`"), "Its key, PEM, without a passphrase."),
    key("tls_server_config.cert", Text, Derived("none"), "The certificate itself, in the file's place."),
    key("tls_server_config.key", Text, Derived("none"), "The key itself, in the file's place."),
    key("tls_server_config.client_auth_type", Choice(client_auth_types, &[]), Value("NoClientCert"), "Whether clients show a certificate. With `RequireAndVerifyClientCert` those without one get the two health pages and else 403; a wrong one ends the handshake."),
    key("tls_server_config.client_ca_file", Path, Derived("required, or `client_ca`, where clients' certificates are verified"), "The authorities of clients' certificates, PEM."),
    key("tls_server_config.client_ca", Text, Derived("none"), "The authorities themselves, in the file's place."),
    key("tls_server_config.client_allowed_sans", List, Derived("all that the authorities signed"), "Names of which a client's certificate must have one: DNS names and IP addresses."),
    key("tls_server_config.client_allowed_sans[]", Text, Derived("none"), "One name."),
    key("tls_server_config.min_version", Choice(versions, &[]), Value("TLS12"), "The oldest version that is spoken."),
    key("tls_server_config.max_version", Choice(versions, &[]), Value("TLS13"), "The newest."),
    key("tls_server_config.cipher_suites", List, Derived("all of them"), "The suites of TLS 1.2; those of 1.3 are always there."),
    key("tls_server_config.cipher_suites[]", Choice(suites, &[]), Derived("none"), "One suite."),
    key("tls_server_config.prefer_server_cipher_suites", Switch, Value("true"), "Whether our order of suites counts rather than the client's."),
    key("tls_server_config.curve_preferences", List, Derived("all of them"), "The groups for the exchange of keys, in order of preference."),
    key("tls_server_config.curve_preferences[]", Choice(curves, &[]), Derived("none"), "One group."),
    section("http_server_config", "What concerns HTTP."),
    key("http_server_config.http2", Switch, Value("false"), "Read and without effect: HTTP/1.1 is spoken."),
    key("http_server_config.headers", Map, Derived("none"), "Headers of every answer: Content-Security-Policy, Strict-Transport-Security, X-Content-Type-Options, X-Frame-Options, X-XSS-Protection."),
    key("basic_auth_users", Map, Derived("nobody is asked for a password"), "Passwords by user, hashed with bcrypt. Asked for everywhere but at the two health pages."),
];
