//! Encryption, and how strictly the server's certificate is checked.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use mysql_common::constants::CapabilityFlags;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::error::Error;
use super::options::{Endpoint, Options, TlsMode};
use super::protocol::Greeting;

/// Whether to encrypt, given the mode and the server's capabilities.
pub fn decide(mode: TlsMode, is_socket: bool, greeting: &Greeting) -> Result<bool, Error> {
    let can = greeting.capabilities.contains(CapabilityFlags::CLIENT_SSL);
    match mode {
        TlsMode::Disabled => Ok(false),
        TlsMode::Preferred => Ok(can && !is_socket),
        _ if can => Ok(true),
        _ => Err(Error::Tls("the server does not offer it".to_owned())),
    }
}

/// A TLS session with the server of these options, before its handshake.
pub fn session(options: &Options) -> Result<ClientConnection, Error> {
    ClientConnection::new(config(options.tls, options.tls_ca.as_deref())?, server_name(&options.endpoint)?)
        .map_err(|cause| Error::Tls(cause.to_string()))
}

/// How a server's certificate is checked, for any number of sessions.
pub fn config(mode: TlsMode, authority: Option<&Path>) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|cause| Error::Tls(cause.to_string()))?;
    let config = match mode {
        TlsMode::VerifyIdentity => {
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(authorities(authority)?), provider)
                    .build()
                    .map_err(|cause| Error::Tls(cause.to_string()))?;
            builder.with_webpki_verifier(verifier)
        }
        TlsMode::VerifyCa => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName {
            roots: Some(authorities(authority)?),
            provider,
        })),
        TlsMode::Disabled | TlsMode::Preferred | TlsMode::Required => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName { roots: None, provider }))
        }
    };
    let mut config = config.with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The name that a certificate must have.
pub fn server_name(endpoint: &Endpoint) -> Result<ServerName<'static>, Error> {
    match endpoint {
        Endpoint::Socket(_) => Ok(ServerName::IpAddress(IpAddr::from([127, 0, 0, 1]).into())),
        Endpoint::Tcp { host, .. } => ServerName::try_from(host.clone())
            .map_err(|_| Error::Tls(format!("{host:?} is neither a DNS name nor an address"))),
    }
}

fn authorities(authority: Option<&Path>) -> Result<RootCertStore, Error> {
    // `ServerArguments` requires the file.
    let path = authority.unwrap_or(Path::new(""));
    let error =
        |cause: &dyn std::fmt::Display| Error::Tls(format!("authorities of {}: {cause}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|cause| error(&cause))? {
        roots.add(certificate.map_err(|cause| error(&cause))?).map_err(|cause| error(&cause))?;
    }
    if roots.is_empty() {
        return Err(error(&"the file has no certificate"));
    }
    Ok(roots)
}

/// Accepts a certificate for any name; with `roots` only one that they signed. The server must still prove
/// that it has the certificate's key.
#[derive(Debug)]
struct AnyName {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
