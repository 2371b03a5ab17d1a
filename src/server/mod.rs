//! How do others read us? The HTTP server: metrics, health, reload, plans and a status page.
