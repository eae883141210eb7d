// Sets up and reads Actual Budget through the functions that its own page offers for this ($send, $query). Values come as JSON.
(() => {
  const month = () => { const now = new Date(); return `${now.getFullYear()}-${String(now.getMonth() + 1).padStart(2, "0")}`; };
  const rows = async (query) => (await $query(query)).data;
  const categories = async () => (await $send("api/category-groups-get", {})).filter((group) => !group.is_income)
    .flatMap((group) => (group.categories || []).map((each) => ({id: each.id, name: each.name, group: group.name, hidden: !!each.hidden})));
  const budgeted = async () => {
    const groups = (await $send("api/budget-month", {month: month()})).categoryGroups;
    return new Map(groups.flatMap((group) => group.categories.map((each) => [each.id, each.budgeted || 0])));
  };

  const read = async () => {
    const amounts = await budgeted();
    const tables = {accounts: {}, transactions: {}, categories: {}, payees: {}};
    const accounts = await $send("api/accounts-get", {});
    const held = await rows($q("transactions").select(["id", "account.name", "amount", "payee.name", "category.name", "notes", "starting_balance_flag"]));
    for (const each of accounts) {
      const balance = held.filter((one) => one["account.name"] === each.name).reduce((sum, one) => sum + one.amount, 0);
      tables.accounts[each.name] = {balance, closed: !!each.closed};
    }
    for (const one of held) {
      if (one.starting_balance_flag) continue;
      tables.transactions[one.id] = {account: one["account.name"] || "", amount: one.amount, payee: one["payee.name"] || "",
        category: one["category.name"] || "", notes: one.notes || ""};
    }
    for (const each of await categories()) tables.categories[each.name] = {group: each.group, hidden: each.hidden, budgeted: amounts.get(each.id) || 0};
    for (const each of await $send("api/payees-get", {}))
      if (!each.transfer_acct && each.name !== "Starting Balance") tables.payees[each.name] = {};
    return tables;
  };

  const clear = async () => {
    for (const each of await $send("api/accounts-get", {})) await $send("api/account-delete", {id: each.id});
    for (const each of await $send("api/payees-get", {}))
      if (!each.transfer_acct && each.name !== "Starting Balance") await $send("api/payee-delete", {id: each.id});
    for (const each of await $send("api/rules-get", {})) await $send("api/rule-delete", {id: each.id});
  };

  const restore_categories = async (wanted) => {
    const kept = globalThis.__distrl_categories ||= await categories(), now = await categories();
    for (const each of now) if (!kept.some((one) => one.id === each.id)) await $send("api/category-delete", {id: each.id});
    for (const each of now) {
      const was = kept.find((one) => one.id === each.id);
      if (was && (was.name !== each.name || was.hidden !== each.hidden))
        await $send("api/category-update", {id: each.id, fields: {name: was.name, hidden: was.hidden}});
    }
    const amounts = await budgeted();
    for (const each of kept) {
      const amount = (wanted[each.name] || {}).budgeted || 0;
      if ((amounts.get(each.id) || 0) !== amount) await $send("api/budget-set-amount", {month: month(), categoryId: each.id, amount});
    }
    return kept;
  };

  const begin = async (tables) => {
    if (!globalThis.__distrl_budget) {
      await __actionsForMenu.createBudget({testMode: false});
      globalThis.__distrl_budget = true;
    }
    __actionsForMenu.closeModal();
    await clear();
    const kept = await restore_categories(tables.categories || {});
    const ids = {}, today = new Date().toISOString().slice(0, 10);
    for (const [name, fields] of Object.entries(tables.accounts || {})) {
      const later = Object.values(tables.transactions || {}).filter((each) => each.account === name);
      const initialBalance = fields.balance - later.reduce((sum, each) => sum + each.amount, 0);
      ids[name] = await $send("api/account-create", {account: {name, offbudget: false}, initialBalance});
    }
    for (const [id, each] of Object.entries(tables.transactions || {})) {
      const category = (kept.find((one) => one.name === each.category) || {}).id;
      await $send("api/transactions-add", {accountId: ids[each.account], transactions: [
        {id, date: today, amount: each.amount, payee_name: each.payee, category, notes: each.notes}]});
    }
    const shows = () => location.pathname === "/budget" && kept.every((each) => document.body.innerText.includes(each.name));
    for (let turn = 0; turn < 600 && !shows(); turn += 1) {
      if (turn % 20 === 0) __navigate("/budget");  // it goes nowhere while it is still coming from elsewhere
      await new Promise((done) => setTimeout(done, 50));
    }
    if (!shows()) throw new Error(`it shows ${location.pathname} and not its categories`);
    scrollTo(0, 0);
    return true;
  };

  globalThis.__distrl_app = {begin, read};
  return true;
})()
