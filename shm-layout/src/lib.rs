//! gpushare's shared-memory segments: layout, ledger, lock and event protocols, snapshots.
