//! The program as a process: exit statuses, output, signals, crashes.

mod audit;
mod backup;
mod commands;
mod crash;
mod demo;
mod discover;
mod forget;
mod http2;
mod logs;
mod related;
mod reload;
mod spellings;
mod start;
mod sync;
mod versions;
