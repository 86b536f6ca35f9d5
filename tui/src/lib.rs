//! gpushare-top and gpushare: the dashboard and the control program.
