// What the page says, in the languages of its readers. A message may have plural forms, as Intl.PluralRules names them.

const KEPT = "interlingua-language"; // the reader's own choice

export const MESSAGES = {
  en: {
    search: "Search", compare: "Compare", ask: "Ask a question", question: "Question", again: "The same question in another language",
    results: "results", clear: "clear", more: "More results", welcome: "Ask in any language",
    size: "{passages} in {languages}. Answers come in whichever says it best.", in: "{passages} in {languages}",
    welcome2: "One question, two languages",
    text2: "Write the same question twice. Where the two rankings agree, the language of the question does not matter.",
    passages: { one: "{n} passage", other: "{n} passages" }, languages: { one: "{n} language", other: "{n} languages" },
    hybrid: "Hybrid", dense: "Dense", lexical: "Lexical", any: "Any language", same: "Same as question", others: "{n} more",
    rerank: "Rerank", documents: "One per document", searching: "Searching …", busy: "The search service is busy; asking again in {n} s …",
    read: "question read as {lang}", nothing: "Nothing found", noWords: "No passage has these words.", noAnswer: "No passage answers this question here.",
    allIndexes: "All collections", everyLanguage: "Search every language", byMeaning: "Search by meaning too", allValues: "Search all values", noFilters: "Search without filters",
    tryAgain: "Try again", noNetworkTitle: "No answer", busyTitle: "Busy", lockedTitle: "Not open to all", refusedTitle: "Not possible", brokenTitle: "Something is wrong",
    noNetwork: "The search service does not answer. Is it running, and are you connected?",
    token: "Token", enter: "Enter", tokenWrong: "The search service does not know this token.", tokenAsked: "The search service asks for a token.",
    whole: "Whole text", less: "Less", further: "{n} more from this document", fewer: "Less from this document", part: "part {n}",
    around: "Text around it", also: "also in {names}",
    noLanguage: "No language", pageLanguage: "Language of this page",
  },
  ar: {
    search: "بحث", compare: "مقارنة", ask: "اطرح سؤالاً", question: "السؤال", again: "السؤال نفسه بلغة أخرى",
    results: "النتائج", clear: "مسح", more: "مزيد من النتائج", welcome: "اسأل بأي لغة",
    size: "{passages}، {languages}. تأتي الإجابات باللغة التي تعبّر عنها أفضل تعبير.", in: "{passages}، {languages}",
    welcome2: "سؤال واحد بلغتين",
    text2: "اكتب السؤال نفسه مرتين. حيثما يتفق الترتيبان لا يكون للغة السؤال أثر.",
    passages: { other: "عدد المقاطع: {n}" }, languages: { other: "عدد اللغات: {n}" },
    hybrid: "مختلط", dense: "بالمعنى", lexical: "بالكلمات", any: "أي لغة", same: "لغة السؤال", others: "{n} أخرى",
    rerank: "إعادة الترتيب", documents: "نتيجة واحدة لكل مستند", searching: "جارٍ البحث…", busy: "خدمة البحث مشغولة؛ ستُعاد المحاولة بعد {n} ث…",
    read: "فُهم السؤال على أنه بلغة: {lang}", nothing: "لم يُعثر على شيء", noWords: "لا يوجد مقطع فيه هذه الكلمات.", noAnswer: "لا يوجد هنا مقطع يجيب عن هذا السؤال.",
    allIndexes: "كل المجموعات", everyLanguage: "ابحث في كل اللغات", byMeaning: "ابحث بالمعنى أيضاً", allValues: "ابحث في كل القيم", noFilters: "ابحث دون تصفية",
    tryAgain: "حاول مرة أخرى", noNetworkTitle: "لا رد", busyTitle: "الخدمة مشغولة", lockedTitle: "ليست متاحة للجميع", refusedTitle: "غير ممكن", brokenTitle: "حدث خطأ ما",
    noNetwork: "خدمة البحث لا ترد. هل هي قيد التشغيل، وهل أنت متصل بالشبكة؟",
    token: "رمز الدخول", enter: "دخول", tokenWrong: "خدمة البحث لا تعرف هذا الرمز.", tokenAsked: "خدمة البحث تطلب رمز دخول.",
    whole: "النص كاملاً", less: "أقل", further: "مقاطع أخرى من هذا المستند: {n}", fewer: "إخفاء المقاطع الأخرى", part: "الجزء {n}",
    around: "النص المحيط", also: "أيضاً في {names}",
    noLanguage: "بلا لغة", pageLanguage: "لغة هذه الصفحة",
  },
  bn: {
    search: "অনুসন্ধান", compare: "তুলনা", ask: "একটি প্রশ্ন করুন", question: "প্রশ্ন", again: "একই প্রশ্ন অন্য ভাষায়",
    results: "ফলাফল", clear: "মুছুন", more: "আরও ফলাফল", welcome: "যেকোনো ভাষায় প্রশ্ন করুন",
    size: "{languages}, {passages}। যে ভাষায় উত্তর সবচেয়ে ভালো আছে, সেই ভাষাতেই তা দেখানো হয়।", in: "{languages}, {passages}",
    welcome2: "এক প্রশ্ন, দুই ভাষা",
    text2: "একই প্রশ্ন দুবার লিখুন। দুই তালিকা যেখানে মিলে যায়, সেখানে প্রশ্নের ভাষায় কিছু যায় আসে না।",
    passages: { other: "{n}টি অনুচ্ছেদ" }, languages: { other: "{n}টি ভাষা" },
    hybrid: "মিশ্র", dense: "অর্থ অনুযায়ী", lexical: "শব্দ অনুযায়ী", any: "যেকোনো ভাষা", same: "প্রশ্নের ভাষা", others: "আরও {n}টি",
    rerank: "আবার সাজান", documents: "প্রতি নথিতে একটি", searching: "খোঁজা হচ্ছে…", busy: "অনুসন্ধান সেবা ব্যস্ত; {n} সেকেন্ড পরে আবার চেষ্টা করা হবে…",
    read: "প্রশ্নের ভাষা: {lang}", nothing: "কিছু পাওয়া যায়নি", noWords: "কোনো অনুচ্ছেদে এই শব্দগুলো নেই।", noAnswer: "এখানে কোনো অনুচ্ছেদে এই প্রশ্নের উত্তর নেই।",
    allIndexes: "সব সংগ্রহ", everyLanguage: "সব ভাষায় খুঁজুন", byMeaning: "অর্থ অনুযায়ীও খুঁজুন", allValues: "সব মানের মধ্যে খুঁজুন", noFilters: "ফিল্টার ছাড়া খুঁজুন",
    tryAgain: "আবার চেষ্টা করুন", noNetworkTitle: "কোনো সাড়া নেই", busyTitle: "ব্যস্ত", lockedTitle: "সবার জন্য উন্মুক্ত নয়", refusedTitle: "সম্ভব নয়", brokenTitle: "কোথাও সমস্যা হয়েছে",
    noNetwork: "অনুসন্ধান সেবা সাড়া দিচ্ছে না। সেটি কি চালু আছে, আর আপনি কি সংযুক্ত আছেন?",
    token: "টোকেন", enter: "প্রবেশ", tokenWrong: "অনুসন্ধান সেবা এই টোকেন চেনে না।", tokenAsked: "অনুসন্ধান সেবা একটি টোকেন চায়।",
    whole: "পুরো লেখা", less: "কম দেখান", further: "এই নথি থেকে আরও {n}টি", fewer: "এই নথি থেকে কম দেখান", part: "অংশ {n}",
    around: "আশপাশের লেখা", also: "এতেও আছে: {names}",
    noLanguage: "ভাষা নেই", pageLanguage: "এই পাতার ভাষা",
  },
  fi: {
    search: "Hae", compare: "Vertaa", ask: "Esitä kysymys", question: "Kysymys", again: "Sama kysymys toisella kielellä",
    results: "tulokset", clear: "tyhjennä", more: "Lisää tuloksia", welcome: "Kysy millä kielellä tahansa",
    size: "{passages}, {languages}. Vastaus tulee sillä kielellä, jolla se on parhaiten sanottu.", in: "{passages}, {languages}",
    welcome2: "Yksi kysymys, kaksi kieltä",
    text2: "Kirjoita sama kysymys kahdesti. Missä tulosten järjestys on sama, kysymyksen kielellä ei ole väliä.",
    passages: { one: "{n} tekstikohta", other: "{n} tekstikohtaa" }, languages: { one: "{n} kieli", other: "{n} kieltä" },
    hybrid: "Yhdistetty", dense: "Merkitys", lexical: "Sanat", any: "Mikä tahansa kieli", same: "Kysymyksen kieli", others: "{n} muuta",
    rerank: "Järjestä uudelleen", documents: "Yksi asiakirjaa kohti", searching: "Haetaan…", busy: "Hakupalvelu on ruuhkautunut; yritetään uudelleen {n} s kuluttua…",
    read: "kysymyksen kieli: {lang}", nothing: "Mitään ei löytynyt", noWords: "Näitä sanoja ei ole missään tekstikohdassa.", noAnswer: "Mikään tekstikohta ei vastaa tähän kysymykseen.",
    allIndexes: "Kaikki kokoelmat", everyLanguage: "Hae kaikilla kielillä", byMeaning: "Hae myös merkityksen mukaan", allValues: "Hae kaikista arvoista", noFilters: "Hae ilman rajauksia",
    tryAgain: "Yritä uudelleen", noNetworkTitle: "Ei vastausta", busyTitle: "Ruuhkaa", lockedTitle: "Ei avoin kaikille", refusedTitle: "Ei onnistu", brokenTitle: "Jokin on vialla",
    noNetwork: "Hakupalvelu ei vastaa. Onko se käynnissä, ja onko sinulla verkkoyhteys?",
    token: "Tunniste", enter: "Jatka", tokenWrong: "Hakupalvelu ei tunne tätä tunnistetta.", tokenAsked: "Hakupalvelu pyytää tunnistetta.",
    whole: "Koko teksti", less: "Vähemmän", further: "{n} lisää tästä asiakirjasta", fewer: "Vähemmän tästä asiakirjasta", part: "osa {n}",
    around: "Ympäröivä teksti", also: "myös: {names}",
    noLanguage: "Ei kieltä", pageLanguage: "Tämän sivun kieli",
  },
  id: {
    search: "Cari", compare: "Bandingkan", ask: "Ajukan pertanyaan", question: "Pertanyaan", again: "Pertanyaan yang sama dalam bahasa lain",
    results: "hasil", clear: "hapus", more: "Hasil lainnya", welcome: "Bertanyalah dalam bahasa apa pun",
    size: "{passages} dalam {languages}. Jawaban muncul dalam bahasa yang paling tepat mengungkapkannya.", in: "{passages} dalam {languages}",
    welcome2: "Satu pertanyaan, dua bahasa",
    text2: "Tulis pertanyaan yang sama dua kali. Bila kedua urutan hasilnya sama, bahasa pertanyaan tidak berpengaruh.",
    passages: { other: "{n} bagian teks" }, languages: { other: "{n} bahasa" },
    hybrid: "Gabungan", dense: "Makna", lexical: "Kata", any: "Bahasa apa pun", same: "Sama dengan pertanyaan", others: "{n} lainnya",
    rerank: "Urutkan ulang", documents: "Satu per dokumen", searching: "Mencari…", busy: "Layanan pencarian sedang sibuk; dicoba lagi dalam {n} dtk…",
    read: "bahasa pertanyaan: {lang}", nothing: "Tidak ada yang ditemukan", noWords: "Tidak ada bagian teks yang memuat kata-kata ini.", noAnswer: "Tidak ada bagian teks yang menjawab pertanyaan ini.",
    allIndexes: "Semua koleksi", everyLanguage: "Cari di semua bahasa", byMeaning: "Cari juga menurut makna", allValues: "Cari di semua nilai", noFilters: "Cari tanpa filter",
    tryAgain: "Coba lagi", noNetworkTitle: "Tidak ada jawaban", busyTitle: "Sibuk", lockedTitle: "Tidak terbuka untuk umum", refusedTitle: "Tidak bisa", brokenTitle: "Ada yang salah",
    noNetwork: "Layanan pencarian tidak menjawab. Apakah layanan berjalan, dan apakah Anda tersambung?",
    token: "Token", enter: "Masuk", tokenWrong: "Layanan pencarian tidak mengenal token ini.", tokenAsked: "Layanan pencarian meminta token.",
    whole: "Teks lengkap", less: "Lebih sedikit", further: "{n} lagi dari dokumen ini", fewer: "Sembunyikan yang lain", part: "bagian {n}",
    around: "Teks di sekitarnya", also: "juga di {names}",
    noLanguage: "Tanpa bahasa", pageLanguage: "Bahasa halaman ini",
  },
  ja: {
    search: "検索", compare: "比較", ask: "質問を入力してください", question: "質問", again: "同じ質問を別の言語で",
    results: "結果", clear: "消去", more: "さらに結果を表示", welcome: "どの言語でも質問できます",
    size: "{languages}、{passages}。最もよく答えている文章を、言語を問わず表示します。", in: "{languages}、{passages}",
    welcome2: "一つの質問、二つの言語",
    text2: "同じ質問を二つの言語で書いてください。二つの順位が一致するところでは、質問の言語は影響していません。",
    passages: { other: "{n} 件の文章" }, languages: { other: "{n} 言語" },
    hybrid: "併用", dense: "意味", lexical: "語句", any: "すべての言語", same: "質問と同じ言語", others: "他 {n} 言語",
    rerank: "再順位付け", documents: "文書ごとに一件", searching: "検索中…", busy: "検索サービスが混み合っています。{n} 秒後にもう一度試します…",
    read: "質問の言語：{lang}", nothing: "見つかりませんでした", noWords: "これらの語を含む文章はありません。", noAnswer: "この質問に答える文章はありません。",
    allIndexes: "すべてのコレクション", everyLanguage: "すべての言語で検索", byMeaning: "意味でも検索", allValues: "すべての値で検索", noFilters: "絞り込まずに検索",
    tryAgain: "もう一度試す", noNetworkTitle: "応答がありません", busyTitle: "混雑中", lockedTitle: "公開されていません", refusedTitle: "実行できません", brokenTitle: "問題が発生しました",
    noNetwork: "検索サービスが応答しません。サービスは動いていますか。ネットワークに接続していますか。",
    token: "トークン", enter: "送信", tokenWrong: "検索サービスはこのトークンを認識できません。", tokenAsked: "検索サービスを使うにはトークンが必要です。",
    whole: "全文を表示", less: "折りたたむ", further: "この文書からさらに {n} 件", fewer: "この文書の表示を減らす", part: "第 {n} 部",
    around: "前後の文章", also: "ほかに {names}",
    noLanguage: "言語なし", pageLanguage: "このページの言語",
  },
  ko: {
    search: "검색", compare: "비교", ask: "질문을 입력하세요", question: "질문", again: "같은 질문을 다른 언어로",
    results: "결과", clear: "지우기", more: "결과 더 보기", welcome: "어떤 언어로든 질문하세요",
    size: "{languages}, {passages}. 언어와 관계없이 가장 잘 답하는 글을 보여 줍니다.", in: "{languages}, {passages}",
    welcome2: "하나의 질문, 두 언어",
    text2: "같은 질문을 두 번 쓰세요. 두 순위가 일치하는 곳에서는 질문의 언어가 영향을 주지 않습니다.",
    passages: { other: "글 {n}개" }, languages: { other: "언어 {n}개" },
    hybrid: "혼합", dense: "의미", lexical: "단어", any: "모든 언어", same: "질문과 같은 언어", others: "{n}개 더",
    rerank: "순위 다시 매기기", documents: "문서마다 하나씩", searching: "검색 중…", busy: "검색 서비스가 바쁩니다. {n}초 후에 다시 시도합니다…",
    read: "질문의 언어: {lang}", nothing: "찾은 결과가 없습니다", noWords: "이 단어가 들어 있는 글이 없습니다.", noAnswer: "이 질문에 답하는 글이 없습니다.",
    allIndexes: "모든 컬렉션", everyLanguage: "모든 언어에서 검색", byMeaning: "의미로도 검색", allValues: "모든 값에서 검색", noFilters: "필터 없이 검색",
    tryAgain: "다시 시도", noNetworkTitle: "응답 없음", busyTitle: "사용량이 많음", lockedTitle: "공개되지 않음", refusedTitle: "할 수 없음", brokenTitle: "문제가 생겼습니다",
    noNetwork: "검색 서비스가 응답하지 않습니다. 서비스가 실행 중인지, 네트워크에 연결되어 있는지 확인하세요.",
    token: "토큰", enter: "확인", tokenWrong: "검색 서비스가 이 토큰을 알지 못합니다.", tokenAsked: "검색 서비스에 토큰이 필요합니다.",
    whole: "전체 글 보기", less: "접기", further: "이 문서에서 {n}개 더", fewer: "이 문서 결과 접기", part: "{n}부",
    around: "앞뒤 글", also: "같은 글: {names}",
    noLanguage: "언어 없음", pageLanguage: "이 페이지의 언어",
  },
  ru: {
    search: "Найти", compare: "Сравнить", ask: "Задайте вопрос", question: "Вопрос", again: "Тот же вопрос на другом языке",
    results: "результаты", clear: "очистить", more: "Ещё результаты", welcome: "Спрашивайте на любом языке",
    size: "{passages}, {languages}. Ответ будет на том языке, на котором он сформулирован лучше всего.", in: "{passages}, {languages}",
    welcome2: "Один вопрос, два языка",
    text2: "Напишите один и тот же вопрос дважды. Там, где результаты совпадают, язык вопроса не имеет значения.",
    passages: { one: "{n} фрагмент", few: "{n} фрагмента", many: "{n} фрагментов", other: "{n} фрагмента" },
    languages: { one: "{n} язык", few: "{n} языка", many: "{n} языков", other: "{n} языка" },
    hybrid: "Вместе", dense: "По смыслу", lexical: "По словам", any: "Любой язык", same: "Язык вопроса", others: "ещё {n}",
    rerank: "Переупорядочить", documents: "По одному из документа", searching: "Идёт поиск…", busy: "Служба поиска занята; повтор через {n} с…",
    read: "язык вопроса: {lang}", nothing: "Ничего не найдено", noWords: "Этих слов нет ни в одном фрагменте.", noAnswer: "Здесь нет фрагмента, который отвечает на этот вопрос.",
    allIndexes: "Все коллекции", everyLanguage: "Искать на всех языках", byMeaning: "Искать и по смыслу", allValues: "Искать среди всех значений", noFilters: "Искать без фильтров",
    tryAgain: "Повторить", noNetworkTitle: "Нет ответа", busyTitle: "Служба занята", lockedTitle: "Доступ ограничен", refusedTitle: "Это невозможно", brokenTitle: "Что-то не так",
    noNetwork: "Служба поиска не отвечает. Запущена ли она и есть ли подключение к сети?",
    token: "Токен", enter: "Войти", tokenWrong: "Служба поиска не знает этого токена.", tokenAsked: "Служба поиска запрашивает токен.",
    whole: "Весь текст", less: "Свернуть", further: "Ещё из этого документа: {n}", fewer: "Свернуть остальные", part: "часть {n}",
    around: "Текст вокруг", also: "также в {names}",
    noLanguage: "Язык не указан", pageLanguage: "Язык этой страницы",
  },
  sw: {
    search: "Tafuta", compare: "Linganisha", ask: "Uliza swali", question: "Swali", again: "Swali lilelile kwa lugha nyingine",
    results: "matokeo", clear: "futa", more: "Matokeo zaidi", welcome: "Uliza kwa lugha yoyote",
    size: "{passages}, {languages}. Majibu huja kwa lugha inayoyaeleza vizuri zaidi.", in: "{passages}, {languages}",
    welcome2: "Swali moja, lugha mbili",
    text2: "Andika swali lilelile mara mbili. Pale ambapo orodha mbili zinakubaliana, lugha ya swali haileti tofauti.",
    passages: { one: "kifungu {n}", other: "vifungu {n}" }, languages: { other: "lugha {n}" },
    hybrid: "Mchanganyiko", dense: "Maana", lexical: "Maneno", any: "Lugha yoyote", same: "Lugha ya swali", others: "{n} zaidi",
    rerank: "Panga upya", documents: "Moja kwa kila hati", searching: "Inatafuta…", busy: "Huduma ya utafutaji ina shughuli nyingi; itajaribu tena baada ya sekunde {n}…",
    read: "lugha ya swali: {lang}", nothing: "Hakuna kilichopatikana", noWords: "Hakuna kifungu chenye maneno haya.", noAnswer: "Hakuna kifungu kinachojibu swali hili hapa.",
    allIndexes: "Mikusanyo yote", everyLanguage: "Tafuta katika lugha zote", byMeaning: "Tafuta kwa maana pia", allValues: "Tafuta katika thamani zote", noFilters: "Tafuta bila vichujio",
    tryAgain: "Jaribu tena", noNetworkTitle: "Hakuna jibu", busyTitle: "Ina shughuli nyingi", lockedTitle: "Si wazi kwa wote", refusedTitle: "Haiwezekani", brokenTitle: "Kuna hitilafu",
    noNetwork: "Huduma ya utafutaji haijibu. Je, inaendeshwa, na je, umeunganishwa kwenye mtandao?",
    token: "Tokeni", enter: "Ingia", tokenWrong: "Huduma ya utafutaji haiitambui tokeni hii.", tokenAsked: "Huduma ya utafutaji inahitaji tokeni.",
    whole: "Maandishi yote", less: "Punguza", further: "{n} zaidi kutoka hati hii", fewer: "Punguza kutoka hati hii", part: "sehemu ya {n}",
    around: "Maandishi yanayozunguka", also: "pia katika {names}",
    noLanguage: "Hakuna lugha", pageLanguage: "Lugha ya ukurasa huu",
  },
  te: {
    search: "వెతకండి", compare: "పోల్చండి", ask: "ఒక ప్రశ్న అడగండి", question: "ప్రశ్న", again: "అదే ప్రశ్న మరో భాషలో",
    results: "ఫలితాలు", clear: "తుడిచివేయి", more: "మరిన్ని ఫలితాలు", welcome: "ఏ భాషలోనైనా అడగండి",
    size: "{languages}, {passages}. ఏ భాషలో సమాధానం బాగా ఉంటే ఆ భాషలో చూపిస్తాము.", in: "{languages}, {passages}",
    welcome2: "ఒకే ప్రశ్న, రెండు భాషలు",
    text2: "ఒకే ప్రశ్నను రెండుసార్లు రాయండి. రెండు వరుసలు కలిసే చోట ప్రశ్న ఏ భాషలో ఉందన్నది ముఖ్యం కాదు.",
    passages: { one: "{n} భాగం", other: "{n} భాగాలు" }, languages: { one: "{n} భాష", other: "{n} భాషలు" },
    hybrid: "మిశ్రమం", dense: "అర్థం", lexical: "పదాలు", any: "ఏ భాషైనా", same: "ప్రశ్న భాష", others: "మరో {n}",
    rerank: "మళ్లీ వరుసలో పెట్టు", documents: "పత్రానికి ఒకటి", searching: "వెతుకుతోంది…", busy: "శోధన సేవ రద్దీగా ఉంది; {n} సెకన్లలో మళ్లీ ప్రయత్నిస్తుంది…",
    read: "ప్రశ్న భాష: {lang}", nothing: "ఏమీ దొరకలేదు", noWords: "ఏ భాగంలోనూ ఈ పదాలు లేవు.", noAnswer: "ఈ ప్రశ్నకు సమాధానమిచ్చే భాగం ఇక్కడ లేదు.",
    allIndexes: "అన్ని సంకలనాలు", everyLanguage: "అన్ని భాషల్లో వెతకండి", byMeaning: "అర్థం ప్రకారం కూడా వెతకండి", allValues: "అన్ని విలువల్లో వెతకండి", noFilters: "ఫిల్టర్లు లేకుండా వెతకండి",
    tryAgain: "మళ్లీ ప్రయత్నించండి", noNetworkTitle: "జవాబు లేదు", busyTitle: "రద్దీగా ఉంది", lockedTitle: "అందరికీ అందుబాటులో లేదు", refusedTitle: "సాధ్యం కాదు", brokenTitle: "ఏదో తప్పు జరిగింది",
    noNetwork: "శోధన సేవ జవాబివ్వడం లేదు. అది నడుస్తోందా, మీకు నెట్‌వర్క్ ఉందా?",
    token: "టోకెన్", enter: "ప్రవేశించండి", tokenWrong: "ఈ టోకెన్ శోధన సేవకు తెలియదు.", tokenAsked: "శోధన సేవ టోకెన్ అడుగుతోంది.",
    whole: "పూర్తి పాఠం", less: "తక్కువ చూపు", further: "ఈ పత్రం నుండి మరో {n}", fewer: "ఈ పత్రం నుండి తక్కువ చూపు", part: "{n}వ భాగం",
    around: "చుట్టూ ఉన్న వచనం", also: "ఇందులోనూ: {names}",
    noLanguage: "భాష లేదు", pageLanguage: "ఈ పేజీ భాష",
  },
  th: {
    search: "ค้นหา", compare: "เปรียบเทียบ", ask: "พิมพ์คำถาม", question: "คำถาม", again: "คำถามเดียวกันในอีกภาษาหนึ่ง",
    results: "ผลลัพธ์", clear: "ล้าง", more: "ผลลัพธ์เพิ่มเติม", welcome: "ถามได้ทุกภาษา",
    size: "{passages} ใน {languages} คำตอบจะแสดงในภาษาที่อธิบายได้ดีที่สุด", in: "{passages} ใน {languages}",
    welcome2: "หนึ่งคำถาม สองภาษา",
    text2: "พิมพ์คำถามเดียวกันสองครั้ง ตรงที่ลำดับทั้งสองตรงกัน ภาษาของคำถามไม่มีผล",
    passages: { other: "{n} ข้อความ" }, languages: { other: "{n} ภาษา" },
    hybrid: "แบบผสม", dense: "ความหมาย", lexical: "คำ", any: "ทุกภาษา", same: "ภาษาเดียวกับคำถาม", others: "อีก {n} ภาษา",
    rerank: "จัดอันดับใหม่", documents: "เอกสารละหนึ่งรายการ", searching: "กำลังค้นหา…", busy: "บริการค้นหาไม่ว่าง จะลองใหม่ใน {n} วินาที…",
    read: "ภาษาของคำถาม: {lang}", nothing: "ไม่พบผลลัพธ์", noWords: "ไม่มีข้อความที่มีคำเหล่านี้", noAnswer: "ที่นี่ไม่มีข้อความที่ตอบคำถามนี้",
    allIndexes: "ทุกคอลเลกชัน", everyLanguage: "ค้นหาทุกภาษา", byMeaning: "ค้นหาตามความหมายด้วย", allValues: "ค้นหาทุกค่า", noFilters: "ค้นหาโดยไม่กรอง",
    tryAgain: "ลองอีกครั้ง", noNetworkTitle: "ไม่มีการตอบกลับ", busyTitle: "ไม่ว่าง", lockedTitle: "ไม่ได้เปิดให้ทุกคนใช้", refusedTitle: "ทำไม่ได้", brokenTitle: "เกิดข้อผิดพลาด",
    noNetwork: "บริการค้นหาไม่ตอบกลับ บริการทำงานอยู่หรือไม่ และคุณเชื่อมต่อเครือข่ายอยู่หรือไม่",
    token: "โทเค็น", enter: "เข้าใช้", tokenWrong: "บริการค้นหาไม่รู้จักโทเค็นนี้", tokenAsked: "บริการค้นหาต้องการโทเค็น",
    whole: "ข้อความทั้งหมด", less: "ย่อ", further: "อีก {n} รายการจากเอกสารนี้", fewer: "ย่อรายการจากเอกสารนี้", part: "ส่วนที่ {n}",
    around: "ข้อความรอบ ๆ", also: "มีใน {names} ด้วย",
    noLanguage: "ไม่มีภาษา", pageLanguage: "ภาษาของหน้านี้",
  },
};

/** The first of the language tags `wanted` that the page speaks; English where it speaks none. */
export function chosenLanguage(wanted) {
  const codes = wanted.filter(Boolean).map((tag) => tag.toLowerCase().split("-")[0]);
  return codes.find((code) => Object.hasOwn(MESSAGES, code)) ?? "en";
}

function kept() {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null; // the browser keeps nothing for this page
  }
}

export const language = chosenLanguage([kept(), ...(globalThis.navigator?.languages ?? [])]);

/** Speak another language from now on; the page is loaded anew. */
export function speak(code) {
  try {
    localStorage.setItem(KEPT, code);
  } finally {
    location.reload();
  }
}

export const count = (number, lang = language) => number.toLocaleString(lang);

/** The message `key` with `values` in place of `{names}`; `n`, a number, chooses the plural form. */
export function say(key, values = {}, lang = language) {
  const message = MESSAGES[lang][key];
  const form = typeof message === "string" ? message : message[new Intl.PluralRules(lang).select(values.n)] ?? message.other;
  return form.replace(/\{(\w+)\}/g, (_, name) => (typeof values[name] === "number" ? count(values[name], lang) : values[name]));
}
