//! A visitor: a cookie and the current form.

use super::http::{Request, Response};
use super::server::Server;

#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) address: String,
    cookie: String,
}

/// A form of a page, filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) token: String,
    pub(crate) quantity: u32,
    pub(crate) card: String,
}

impl Visitor {
    /// Opens the shop for the first time: the cookie and the form.
    pub(crate) fn arrives(server: &Server) -> (Self, Form) {
        let page = Request::new("GET", "/").send(&server.address);
        assert_eq!(page.status, 200);
        let cookie = page.header("set-cookie").unwrap();
        for part in ["Path=/", "HttpOnly", "SameSite=Lax"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        let (cookie, _) = cookie.split_once(';').unwrap();
        let visitor = Self {
            address: server.address.clone(),
            cookie: cookie.to_owned(),
        };
        (visitor, Form::of(&page))
    }

    /// The same visitor, after the shop's address has changed.
    pub(crate) fn follows(&self, server: &Server) -> Self {
        Self {
            address: server.address.clone(),
            cookie: self.cookie.clone(),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        let request = Request::new("GET", path).header("Cookie", &self.cookie);
        request.send(&self.address)
    }

    /// The form that a new tab shows.
    pub(crate) fn form(&self) -> Form {
        Form::of(&self.get("/"))
    }

    pub(crate) fn request(&self, form: &Form) -> Request {
        let Form {
            token,
            quantity,
            card,
        } = form;
        Request::new("POST", "/orders")
            .header("Cookie", &self.cookie)
            .form(&format!("token={token}&quantity={quantity}&card={card}"))
    }

    pub(crate) fn submit(&self, form: &Form) -> Response {
        self.request(form).send(&self.address)
    }
}

impl Form {
    /// The form on a page, with the first of its cards.
    pub(crate) fn of(page: &Response) -> Self {
        let token = page.between("name=\"token\" value=\"", "\"").unwrap();
        let quantity = page.between("name=\"quantity\"", "required").unwrap();
        let (_, quantity) = quantity.split_once(" value=\"").unwrap();
        let card = page.between("<option value=\"", "\"").unwrap();
        Self {
            token: token.to_owned(),
            quantity: quantity.trim_end_matches(['"', ' ']).parse().unwrap(),
            card: card.to_owned(),
        }
    }

    pub(crate) fn with_card(&self, card: &str) -> Self {
        Self {
            card: card.to_owned(),
            ..self.clone()
        }
    }

    pub(crate) fn with_quantity(&self, quantity: u32) -> Self {
        Self {
            quantity,
            ..self.clone()
        }
    }
}

/// The order that a submission redirected to.
pub(crate) fn order_of(response: &Response) -> &str {
    assert_eq!(response.status, 303, "{response:?}");
    let location = response.header("location").unwrap();
    location.strip_prefix("/orders/").unwrap()
}

/// Text of a page's notice above the form.
pub(crate) fn notice(page: &Response) -> &str {
    let notice = page.between("<p id=\"notice\" role=\"alert\"", "</p>");
    let notice = notice.unwrap_or_else(|| panic!("no notice: {page:?}"));
    notice.split_once('>').unwrap().1
}
