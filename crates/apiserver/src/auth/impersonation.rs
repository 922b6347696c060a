//! Acting as somebody else, where one may: the `Impersonate-*` headers.

use std::collections::BTreeMap;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::service_account::{groups, split_user_name};
use super::{ANONYMOUS_USER, AUTHENTICATED_GROUP, Attributes, Authorizers, Decision, UNAUTHENTICATED_GROUP, UserInfo};
use crate::cluster::Cluster;
use crate::error::{ApiError, Result};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// Who a request wants to be, as sent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    user: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

fn wanted(headers: &HeaderMap) -> Result<Option<Wanted>> {
    let mut wanted = Wanted::default();
    for (name, value) in headers {
        let Some(kind) = name.as_str().starts_with("impersonate-").then_some(name.as_str()) else { continue };
        let text =
            value.to_str().map_err(|_| ApiError::bad_request(format!("the header {kind} is not readable text")))?.to_owned();
        match kind {
            USER => wanted.user = text,
            GROUP => wanted.groups.push(text),
            UID => wanted.uid = text,
            _ => {
                if let Some(key) = kind.strip_prefix(EXTRA_PREFIX) {
                    let key = percent_decode_str(key).decode_utf8_lossy().to_lowercase();
                    wanted.extra.entry(key).or_default().push(text);
                }
            }
        }
    }
    if !wanted.user.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted == Wanted::default() {
        return Ok(None);
    }
    Err(ApiError::bad_request("requested groups, uid or extra without impersonating a user name"))
}

/// What impersonating one part of an identity is authorized as.
fn attributes(user: &UserInfo, group: &str, resource: &str, name: &str) -> Attributes {
    Attributes {
        user: user.clone(),
        verb: "impersonate".to_owned(),
        is_resource: true,
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

impl Wanted {
    /// All that has to be allowed, in the order in which a refusal is told.
    fn questions(&self, user: &UserInfo) -> Vec<Attributes> {
        let mut questions = vec![match split_user_name(&self.user) {
            Some((namespace, name)) => {
                Attributes { namespace: namespace.to_owned(), ..attributes(user, "", "serviceaccounts", name) }
            }
            None => attributes(user, "", "users", &self.user),
        }];
        questions.extend(self.groups.iter().map(|group| attributes(user, "", "groups", group)));
        for (key, values) in &self.extra {
            questions.extend(values.iter().map(|value| Attributes {
                subresource: key.clone(),
                ..attributes(user, AUTHENTICATION_GROUP, "userextras", value)
            }));
        }
        if !self.uid.is_empty() {
            questions.push(attributes(user, AUTHENTICATION_GROUP, "uids", &self.uid));
        }
        questions
    }

    fn into_user(mut self) -> UserInfo {
        if let (true, Some((namespace, _))) = (self.groups.is_empty(), split_user_name(&self.user)) {
            self.groups = groups(namespace);
        }
        let has = |group: &str| self.groups.iter().any(|g| g == group);
        let is_anonymous = self.user == ANONYMOUS_USER;
        if is_anonymous && !has(UNAUTHENTICATED_GROUP) {
            self.groups.push(UNAUTHENTICATED_GROUP.to_owned());
        } else if !is_anonymous && !has(AUTHENTICATED_GROUP) && !has(UNAUTHENTICATED_GROUP) {
            self.groups.push(AUTHENTICATED_GROUP.to_owned());
        }
        UserInfo { name: self.user, uid: self.uid, groups: self.groups, extra: self.extra }
    }
}

/// The user that a request is made as: `user` itself, or who it impersonates if it may.
pub(crate) async fn apply(user: UserInfo, headers: &HeaderMap, authorizers: &Authorizers, cluster: &Cluster) -> Result<UserInfo> {
    let Some(wanted) = wanted(headers)? else { return Ok(user) };
    for question in wanted.questions(&user) {
        match authorizers.authorize(&question, cluster).await {
            Decision::Allow(_) => {}
            Decision::Deny(why) | Decision::NoOpinion(why) => return Err(question.refusal(&why)),
        }
    }
    Ok(wanted.into_user())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (k.parse::<http::HeaderName>().unwrap(), v.parse().unwrap())).collect()
    }

    fn user(pairs: &[(&str, &str)]) -> UserInfo {
        wanted(&headers(pairs)).unwrap().unwrap().into_user()
    }

    #[test]
    fn a_service_account_brings_its_groups_unless_some_are_stated() {
        let name = "system:serviceaccount:a:b";
        let own = ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"];
        assert_eq!(user(&[("impersonate-user", name)]).groups, own);
        assert_eq!(user(&[("impersonate-user", name), ("impersonate-group", "g")]).groups, ["g", "system:authenticated"]);
        assert_eq!(user(&[("impersonate-user", "system:anonymous")]).groups, ["system:unauthenticated"]);
    }

    #[test]
    fn each_part_is_asked_for_by_its_own_name() {
        let parts = [
            ("impersonate-user", "system:serviceaccount:a:b"),
            ("impersonate-group", "g"),
            ("impersonate-extra-scopes%2fx", "s"),
            ("impersonate-uid", "u"),
        ];
        let questions = wanted(&headers(&parts)).unwrap().unwrap().questions(&UserInfo::default());
        let told: Vec<String> =
            questions.iter().map(|q| format!("{}/{} {} {}", q.group, q.resource_path(), q.namespace, q.name)).collect();
        assert_eq!(
            told,
            [
                "/serviceaccounts a b",
                "/groups  g",
                "authentication.k8s.io/userextras/scopes/x  s",
                "authentication.k8s.io/uids  u"
            ]
        );
    }

    #[test]
    fn groups_without_a_user_are_a_bad_request() {
        assert_eq!(wanted(&headers(&[("impersonate-group", "x")])).unwrap_err().code, 400);
        assert_eq!(wanted(&headers(&[("accept", "x")])).unwrap(), None);
    }
}
