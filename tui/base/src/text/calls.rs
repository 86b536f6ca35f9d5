//! The names of the driver's functions, by their numbers in events.

use gpushare_abi::call_code;

macro_rules! names {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $(fn $used:ident $used_args:tt;)* }
    ) => {
        /// Names of all hooked functions in the table.
        const NAMES: &[&str] = &[$(stringify!($name), $(stringify!($twin),)?)*];
    };
}

gpushare_abi::driver_table!(names);

/// Returns the driver's name of the function with this number, or `None` if this program does not know it.
pub fn name(code: u16) -> Option<&'static str> {
    NAMES.iter().copied().find(|name| call_code(name) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_a_number_of_its_own() {
        let mut codes: Vec<u16> = NAMES.iter().map(|name| call_code(name)).collect();
        codes.sort_unstable();
        assert!(
            codes.is_sorted_by(|a, b| a < b),
            "two functions have one number"
        );
        assert_ne!(codes.last(), Some(&u16::MAX));
        assert_eq!(name(call_code("cuMemAlloc_v2")), Some("cuMemAlloc_v2"));
        assert_eq!(name(u16::MAX), None);
    }
}
