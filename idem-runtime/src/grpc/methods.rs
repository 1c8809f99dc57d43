//! The methods that a layer protects or passes.

use std::collections::HashMap;

/// The treatment of each listed method, by path without first slash; of all methods of a service by its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Methods {
    listed: HashMap<String, Treatment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    Protected,
    Passed,
}

impl Methods {
    /// Lists a method or service; panics for a name that none can have.
    pub(super) fn list(&mut self, name: &str, treatment: Treatment) {
        let listed = name.strip_prefix('/').unwrap_or(name);
        let is_word = |word: &str| {
            let mut chars = word.chars();
            !word.is_empty() && chars.all(|it| it.is_ascii_alphanumeric() || it == '_')
        };
        let (service, method) = match listed.split_once('/') {
            Some((service, method)) => (service, Some(method)),
            None => (listed, None),
        };
        assert!(
            service.split('.').all(is_word) && method.is_none_or(is_word),
            "no method has the name {name:?}; write `shop.v1.Payments/Charge`, or `shop.v1.Payments` for all methods of \
             the service"
        );
        self.listed.insert(listed.to_owned(), treatment);
    }

    /// The treatment of the method with this path; `None`: it is not listed.
    pub(super) fn of(&self, path: &str) -> Option<Treatment> {
        let path = path.strip_prefix('/')?;
        let (service, _) = path.split_once('/')?;
        let listed = self.listed.get(path).or_else(|| self.listed.get(service));
        listed.copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_comes_before_its_service_and_no_other_path_counts() {
        let mut methods = Methods::default();
        methods.list("shop.v1.Payments", Treatment::Protected);
        methods.list("/shop.v1.Payments/Watch", Treatment::Passed);
        methods.list("shop.v1.Orders/Place", Treatment::Protected);
        for (path, treatment) in [
            ("/shop.v1.Payments/Charge", Some(Treatment::Protected)),
            ("/shop.v1.Payments/Watch", Some(Treatment::Passed)),
            ("/shop.v1.Orders/Place", Some(Treatment::Protected)),
            ("/shop.v1.Orders/List", None),
            ("/shop.v1.Payment/Charge", None),
            ("/shop.v1.Payments", None),
            ("shop.v1.Payments/Charge", None),
            ("*", None),
        ] {
            assert_eq!(methods.of(path), treatment, "{path}");
        }
    }

    #[test]
    fn a_name_that_no_method_has_is_a_mistake() {
        for name in [
            "",
            "/",
            "shop.v1.Payments/",
            "shop..Payments",
            "a/b/c",
            "Pay ments",
            "a/*",
        ] {
            let list = || Methods::default().list(name, Treatment::Protected);
            assert!(std::panic::catch_unwind(list).is_err(), "{name:?}");
        }
    }
}
